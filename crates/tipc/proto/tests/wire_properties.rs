//! Property tests of the wire format: decoders never panic, and decoding an encoded message returns the original.

use crossway_tipc_proto::addr::{
    BearerId, Importance, MediaAddr, NetworkId, NodeAddr, NodeId, Port, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::seq::Seq;
use crossway_tipc_proto::wire::{
    BcastInit, Bundle, Capabilities, ConnManager, ConnManagerKind, DataKind, DataMessage,
    Discovery, DiscoveryKind, DomainRecord, ErrorCode, Fragment, FragmentKind, Frame, GapAckBlocks,
    GroupCast, GroupProtocol, GroupProtocolKind, InterfaceName, LinkFields, LinkProtocol,
    LinkProtocolKind, Message, NameItem, NameMessage, NameSeries, Reset, State, Tunnel, TunnelKind,
    View,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn node() -> impl Strategy<Value = NodeAddr> {
    any::<u32>().prop_map(NodeAddr)
}

fn socket() -> impl Strategy<Value = SocketAddr> {
    (any::<u32>(), node()).prop_map(|(port, node)| SocketAddr { port: Port(port), node })
}

fn seq() -> impl Strategy<Value = Seq> {
    any::<u16>().prop_map(Seq)
}

fn importance() -> impl Strategy<Value = Importance> {
    (0u32..4).prop_map(|n| Importance::from_number(n).unwrap())
}

fn error() -> impl Strategy<Value = ErrorCode> {
    (0u32..6).prop_map(|n| ErrorCode::from_number(n).unwrap())
}

fn media() -> impl Strategy<Value = MediaAddr> {
    prop_oneof![
        any::<[u8; 6]>().prop_map(MediaAddr::Ethernet),
        (any::<u32>(), any::<u16>())
            .prop_map(|(ip, port)| MediaAddr::Udp { ip: IpAddr::V4(Ipv4Addr::from(ip)), port }),
        (any::<u128>(), any::<u16>())
            .prop_map(|(ip, port)| MediaAddr::Udp { ip: IpAddr::V6(Ipv6Addr::from(ip)), port }),
    ]
}

fn discovery() -> impl Strategy<Value = Discovery> {
    let kind = prop_oneof![
        Just(DiscoveryKind::Request),
        Just(DiscoveryKind::Response),
        Just(DiscoveryKind::Trial),
        node().prop_map(|suggested| DiscoveryKind::TrialFail { suggested }),
    ];
    (
        kind,
        0u16..0x2000,
        any::<u16>(),
        node(),
        node(),
        any::<u32>(),
        media(),
        any::<u32>(),
        any::<[u8; 16]>(),
    )
        .prop_map(|(kind, caps, random, domain, sender, network, media, net_hash, id)| {
            let capabilities = Capabilities::from_bits(caps);
            let signature = Discovery::legal_signature(random, capabilities);
            let (network, id) = (NetworkId(network), NodeId(id));
            Discovery {
                kind,
                capabilities,
                signature,
                domain,
                sender,
                network,
                media,
                net_hash,
                id,
            }
        })
}

fn data_kind() -> impl Strategy<Value = DataKind> {
    let cast = prop_oneof![
        Just(GroupCast::Broadcast),
        Just(GroupCast::Multicast),
        Just(GroupCast::Unicast)
    ];
    prop_oneof![
        Just(DataKind::Conn),
        (node(), node()).prop_map(|(orig, dest)| DataKind::ConnReturned { orig, dest }),
        (node(), node()).prop_map(|(orig, dest)| DataKind::Direct { orig, dest }),
        (node(), node(), any::<u32>(), any::<u32>()).prop_map(|(orig, dest, service, instance)| {
            DataKind::Named { orig, dest, service, instance }
        }),
        (node(), node(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(
            |(orig, dest, service, a, b)| {
                DataKind::Mcast {
                    orig,
                    dest,
                    range: ServiceRange { service, lower: a.min(b), upper: a.max(b) },
                }
            }
        ),
        (cast, node(), node(), any::<u32>(), any::<u32>(), seq(), any::<bool>()).prop_map(
            |(cast, orig, dest, group, instance, number, ack_required)| {
                DataKind::Group { cast, orig, dest, group, instance, number, ack_required }
            }
        ),
    ]
}

prop_compose! {
    fn data(payload: Vec<u8>)(
        importance in importance(), dest_droppable: bool, flag18: bool, syn: bool, error in error(), reroutes in 0u8..16,
        lookup_scope in 0u8..4, orig_port: u32, dest_port: u32, kind in data_kind(),
    ) -> (DataMessage<'static>, Vec<u8>) {
        let (orig_port, dest_port) = (Port(orig_port), Port(dest_port));
        let message = DataMessage {
            importance, dest_droppable, flag18, syn, error, reroutes, lookup_scope, orig_port, dest_port, kind, payload: &[],
        };
        (message, payload.clone())
    }
}

prop_compose! {
    fn fields()(sender in node(), seq in seq(), ack in seq(), bcast_ack in seq()) -> LinkFields {
        LinkFields { sender, seq, ack, bcast_ack, broadcast: None }
    }
}

fn round_trip(frame: &Frame<'_>) -> Result<(), TestCaseError> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    let exact_bytes = out.clone();
    let exact = Frame::decode(&exact_bytes);
    prop_assert_eq!(exact.as_ref(), Ok(frame));
    out.extend_from_slice(&[0xa5; 7]);
    let padded = Frame::decode(&out);
    prop_assert_eq!(padded.as_ref(), Ok(frame), "padding after the message must be ignored");
    Ok(())
}

proptest! {
    #[test]
    fn decoding_any_bytes_ends_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), steer: bool) {
        if steer && bytes.len() >= 4 {
            // Make most inputs pass the first check, so that they reach the individual decoders.
            let header_words = 6 + bytes[0] as u32 % 10;
            let user = u32::from(bytes[1]) % 16;
            let w0 = 2 << 29 | user << 25 | header_words << 21 | bytes.len() as u32;
            bytes[..4].copy_from_slice(&w0.to_be_bytes());
        }
        if let Ok(view) = View::parse(&bytes) {
            for n in 0..70 {
                view.word(n);
            }
            view.orig_node();
            view.dest_node();
        }
        match Frame::decode(&bytes) {
            Ok(Frame::Sequenced(_, Message::Bundle(bundle))) => {
                for item in bundle.items().flatten() {
                    let _ = Message::decode(&item);
                }
            }
            Ok(Frame::Sequenced(_, Message::Names(names))) => {
                names.items().count();
            }
            Ok(Frame::Link(LinkProtocol { kind: LinkProtocolKind::State(state), .. })) => {
                let _ = GapAckBlocks::decode(state.body);
            }
            _ => {}
        }
    }

    #[test]
    fn discovery_survives_a_round_trip(message in discovery()) {
        round_trip(&Frame::Discovery(message))?;
    }

    #[test]
    fn data_survives_a_round_trip((message, payload) in data(vec![1, 2, 3, 4, 5]), link in fields()) {
        round_trip(&Frame::Sequenced(link, Message::Data(DataMessage { payload: &payload, ..message })))?;
    }

    #[test]
    fn connection_and_group_messages_survive_a_round_trip(
        orig in socket(), dest in socket(), error in error(), kind in 0u8..9, a in seq(), b: u16, nagle: bool, link in fields(),
    ) {
        let conn = |kind| Message::Conn(ConnManager { kind, error, orig, dest });
        let group = |kind| Message::Group(GroupProtocol { kind, orig, dest });
        let message = match kind {
            0 => conn(ConnManagerKind::Probe),
            1 => conn(ConnManagerKind::ProbeReply),
            2 => conn(ConnManagerKind::Ack { blocks: a.0, window: b, nagle }),
            3 => group(GroupProtocolKind::Join { sync: a, window: b }),
            4 => group(GroupProtocolKind::Leave { sync: a }),
            5 => group(GroupProtocolKind::Advertise { window: b }),
            6 => group(GroupProtocolKind::Ack { next: a }),
            7 => group(GroupProtocolKind::Reclaim),
            _ => group(GroupProtocolKind::Remit { window: b }),
        };
        round_trip(&Frame::Sequenced(link, message))?;
    }

    #[test]
    fn internal_messages_survive_a_round_trip(
        body in prop::collection::vec(any::<u8>(), 1..100), dest in node(), owner in node(), a: u16, b: u16, c: u16,
        which in 0u8..8, flag: bool, mut link in fields(), network: u32,
    ) {
        let items = &body[..body.len() / NameItem::LEN * NameItem::LEN];
        let names = |series| Message::Names(NameMessage {
            withdrawal: flag, series, number: Seq(a), owner, dest, bcast_ack_invalid: false, body: items,
        });
        let fragment = |kind| Message::Fragment(Fragment { kind, dest, number: a, importance: (b % 8) as u8, body: &body });
        let message = match which {
            0 => Message::BcastInit(BcastInit { dest, last_bcast: Seq(a), bcast_ack_invalid: flag }),
            1 => Message::Bundle(Bundle { dest, importance: (b % 8) as u8, count: c, body: &body }),
            2 => names(NameSeries::Bulk { last: flag }),
            3 => names(NameSeries::Update),
            4 => names(NameSeries::Legacy),
            5 => fragment(FragmentKind::First),
            6 => fragment(FragmentKind::Last),
            _ => Message::Tunnel(Tunnel {
                kind: if flag { TunnelKind::Synch } else { TunnelKind::Failover },
                dest, bearer: BearerId((b % 8) as u8), count: c, fragment: a, fragments: b, body: &body,
            }),
        };
        if matches!(message, Message::Fragment(_)) || matches!(message, Message::Names(n) if n.series == NameSeries::Update) {
            link.broadcast = flag.then_some(NetworkId(network));
        }
        round_trip(&Frame::Sequenced(link, message))?;
    }

    #[test]
    fn monitor_record_survives_a_round_trip(
        generation in seq(), acked in seq(), up: u64, members in prop::collection::vec(node(), 0..=64), cut in 1usize..16,
    ) {
        let record = DomainRecord { generation, acked, up, members: members.into_iter().collect() };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), record.len());
        prop_assert_eq!(DomainRecord::decode(&bytes), Ok(record));
        prop_assert!(DomainRecord::decode(&bytes[..bytes.len() - cut]).is_err());
    }

    #[test]
    fn monitor_record_of_any_bytes_is_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = DomainRecord::decode(&bytes);
    }

    #[test]
    fn link_protocol_survives_a_round_trip(
        sender in node(), dest in node(), session: u16, numbers: [u16; 5], flags: [bool; 6], bearer in 0u8..8, priority in 0u8..32,
        plane in 0u8..8, tolerance_ms: u16, gap in 0u16..0x2000, bcast_gap in 0u16..0x400, max_packet in 0usize..0x10000,
        name in "[a-z0-9.]{0,15}", which in 0u8..3, body in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let reset = Reset { max_packet: max_packet * 4, interface: InterfaceName::new(&name) };
        let dest_session = flags[3].then_some(numbers[4]);
        let kind = match which {
            0 => LinkProtocolKind::State(State { probe: flags[4], keepalive: flags[5], gap, bcast_gap, body: &body }),
            1 => LinkProtocolKind::Reset(reset),
            _ => LinkProtocolKind::Activate(reset, dest_session),
        };
        // ACTIVATE has the session in the place of the broadcast acknowledgement.
        let bcast_ack = match (which, dest_session) {
            (2, Some(session)) => session,
            _ => numbers[2],
        };
        round_trip(&Frame::Link(LinkProtocol {
            sender, dest, session, ack: Seq(numbers[0]), seq: Seq(numbers[1]), bcast_ack: Seq(bcast_ack),
            last_bcast: Seq(numbers[3]), next_sent: Seq(numbers[4]), bcast_ack_invalid: flags[0], peer_stopping: flags[1],
            redundant_link: flags[2], bearer: BearerId(bearer), priority, plane, tolerance_ms, kind,
        }))?;
    }
}
