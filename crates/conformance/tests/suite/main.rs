//! The test suite that every mechanism must pass.
//!
//! A check is a generic function; `instantiate` makes a test of each check for each mechanism of the registry. A check
//! tests both the capabilities that a mechanism declares in its `Caps` and those that it declares not to have. A
//! mechanism that is missing on this machine is skipped, and its probe's reason and remedy are printed. Every check has
//! a watchdog.

mod bench;
mod closing;
mod content;
mod dying;
mod guest;
#[path = "../in_guest/mod.rs"]
mod in_guest;
mod leftovers;
mod library_spins;
mod limits;
mod older;
mod opening;
mod peer;
mod sharing;
mod waiting;

use crossway_mech::for_every_mechanism;

macro_rules! instantiate {
    ($($module:ident :: $name:ident),* $(,)?) => { $(
        #[allow(non_snake_case)]
        mod $name {
            use super::*;
            use crossway_mech::mechanisms::$module::$name as M;

            instantiate! { @tests
                content::messages_of_every_size_arrive_whole_and_in_order,
                content::every_way_of_waiting_carries_round_trips,
                content::a_stream_can_be_read_in_other_pieces_than_it_was_written,
                content::in_place_and_by_copy_are_the_same_message,
                content::another_process_echoes_what_it_gets,
                limits::the_largest_message_arrives_and_one_byte_more_is_refused,
                limits::a_buffer_that_is_too_small_is_reported,
                limits::facts_are_read_back,
                waiting::an_empty_channel_is_empty_at_once,
                waiting::a_full_channel_is_full_at_once_and_keeps_what_it_took,
                waiting::a_receive_deadline_is_kept_without_burning_the_cpu,
                waiting::a_send_deadline_is_kept_without_burning_the_cpu,
                waiting::the_descriptor_to_wait_for_polls_correctly,
                closing::a_closed_peer_is_noticed_after_its_last_message,
                closing::a_blocked_receiver_notices_that_its_peer_closes,
                closing::a_blocked_sender_notices_that_its_peer_closes,
                dying::a_killed_idle_peer_is_noticed,
                dying::a_peer_killed_while_receiving_is_noticed,
                dying::a_peer_killed_while_sending_into_a_full_channel_is_noticed,
                dying::a_peer_killed_amid_traffic_is_noticed,
                dying::a_peer_killed_while_it_writes_in_place_is_noticed,
                opening::a_name_that_comes_late_is_waited_for_and_one_that_never_comes_is_reported,
                leftovers::nothing_is_left_behind,
                sharing::an_offer_gives_as_many_channels_as_claimed,
                sharing::several_senders_feed_one_receiver_where_claimed,
                sharing::one_send_reaches_all_that_connected_where_claimed,
            }
        }
    )* };
    (@tests $($check:ident :: $test:ident),* $(,)?) => { $(
        #[test]
        fn $test() {
            $check::$test::<M>();
        }
    )* };
}

for_every_mechanism!(instantiate);
