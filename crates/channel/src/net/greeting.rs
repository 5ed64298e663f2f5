//! The greeting on a new connection between hosts: the connection is used only if both ends have the same key, or
//! neither has one.
//!
//! Each side begins with a preamble that says whether it requires a key. If the two differ, the connection is closed,
//! so a side that requires a key never continues without one. With a key, the handshake Noise_NNpsk0 follows. A side
//! without the right key is refused at its first message, and recorded traffic cannot be decrypted with the key later.

use crossway_mech::Deadline;
use crossway_sys::Errno;
use snow::{Builder, HandshakeState};

use super::frames::{Reader, TAG, Writer, plain, seal};
use super::network::{Key, Network};
use super::stream::Stream;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const MAGIC: &[u8; 6] = b"CWCHAN";
const VERSION: u8 = 1;
const PREAMBLE: usize = MAGIC.len() + 2;
/// Length in bytes of a handshake message: its own length (2), an ephemeral key (32) and a tag.
const HANDSHAKE: usize = 2 + 32 + TAG;

/// What a side requires, as its preamble says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain = 0,
    Key = 1,
    /// The answer to a peer that has a different key.
    WrongKey = 2,
}

const fn preamble(mode: Mode) -> [u8; PREAMBLE] {
    let [a, b, c, d, e, f] = *MAGIC;
    [a, b, c, d, e, f, VERSION, mode as u8]
}

const fn mode(network: &Network) -> Mode {
    if network.key.is_some() { Mode::Key } else { Mode::Plain }
}

/// The reason why a greeting failed.
#[derive(Debug)]
pub(crate) enum BadGreeting {
    /// The connection broke or timed out; the text describes how.
    Broken(String),
    /// The ends do not agree on a key, or the peer uses another protocol; the text describes which.
    Disagreed(String),
}

fn handshake(key: &Key, initiator: bool) -> Result<HandshakeState, snow::Error> {
    let prologue = preamble(Mode::Key);
    let builder = Builder::new(PATTERN.parse()?).prologue(&prologue)?.psk(0, key.bytes())?;
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

/// Returns the next handshake message with its length in front.
fn next_message(state: &mut HandshakeState) -> Result<Vec<u8>, snow::Error> {
    let mut message = vec![0; HANDSHAKE];
    let len = state.write_message(&[], &mut message[2..])?;
    message.truncate(2 + len);
    message[..2].copy_from_slice(&(len as u16).to_le_bytes());
    Ok(message)
}

/// Performs the connector's part of the greeting on a new connection.
pub(crate) fn greet(
    stream: Stream,
    network: &Network,
    until: Deadline,
) -> Result<(Writer, Reader), BadGreeting> {
    let broken = |why: &dyn std::fmt::Display| BadGreeting::Broken(why.to_string());
    let wanted = mode(network);
    let mut state = match &network.key {
        Some(key) => Some(handshake(key, true).map_err(|e| broken(&e))?),
        None => None,
    };
    let mut hello = preamble(wanted).to_vec();
    if let Some(state) = &mut state {
        hello.extend(next_message(state).map_err(|e| broken(&e))?);
    }
    let (mut writer, mut reader) = plain(stream);
    writer.write_all(&hello, until).map_err(|e| broken(&e))?;
    reader.need(PREAMBLE, until).map_err(|e| broken(&e))?;
    let answer: [u8; PREAMBLE] = reader.take(PREAMBLE).try_into().unwrap_or_default();
    check_preamble(&answer, wanted).map_err(BadGreeting::Disagreed)?;
    if let Some(mut state) = state {
        reader.need(HANDSHAKE, until).map_err(|e| broken(&e))?;
        let message = reader.take(HANDSHAKE);
        state
            .read_message(&message[2..], &mut [0; HANDSHAKE])
            .map_err(|_| BadGreeting::Disagreed(WRONG_KEY.to_owned()))?;
        seal(state, &mut writer, &mut reader).map_err(|e| broken(&e))?;
    }
    Ok((writer, reader))
}

const WRONG_KEY: &str = "its key is different; give both ends the same key file";

fn check_preamble(answer: &[u8; PREAMBLE], wanted: Mode) -> Result<(), String> {
    let [magic @ .., version, theirs] = answer;
    if magic != MAGIC {
        return Err("it is not a Crossway channel listener".to_owned());
    }
    if *version != VERSION {
        return Err(format!(
            "it speaks version {version} of the greeting, but this end speaks version {VERSION}"
        ));
    }
    match *theirs {
        theirs if theirs == wanted as u8 => Ok(()),
        theirs if theirs == Mode::WrongKey as u8 => Err(WRONG_KEY.to_owned()),
        theirs if theirs == Mode::Key as u8 => {
            Err("it demands a key, but this end has none; set CROSSWAY_CHANNEL_KEY".to_owned())
        }
        _ => {
            Err("it has no key, but this end demands one; give both ends the same key file"
                .to_owned())
        }
    }
}

/// A new connection that was accepted and has not sent its first frame yet.
pub(crate) struct Incoming {
    writer: Writer,
    reader: Reader,
    greeted: bool,
}

/// The result of reading from a new connection.
pub(crate) enum Progress {
    /// More bytes must arrive.
    Waiting,
    /// The connector's first frame is complete.
    Asks(Vec<u8>),
    /// The connection must be closed.
    Over,
}

impl Incoming {
    pub(crate) fn new(stream: Stream) -> Incoming {
        let (writer, reader) = plain(stream);
        Incoming { writer, reader, greeted: false }
    }

    pub(crate) fn stream(&self) -> &Stream {
        self.reader.stream()
    }

    pub(crate) fn into_ends(self) -> (Writer, Reader) {
        (self.writer, self.reader)
    }

    /// Reads the bytes that have arrived. Frames are at most `longest` bytes long.
    pub(crate) fn read(&mut self, network: &Network, longest: usize) -> Progress {
        loop {
            if !self.greeted && !self.greet(network) {
                return Progress::Over;
            }
            if self.greeted {
                match self.reader.frame(longest) {
                    Err(_) => return Progress::Over,
                    Ok(Some(len)) => {
                        let frame = self.reader.show(len).to_vec();
                        self.reader.consume(len);
                        return Progress::Asks(frame);
                    }
                    Ok(None) => {}
                }
            }
            match self.reader.fill() {
                Ok(0) => return Progress::Over,
                Ok(_) => {}
                Err(Errno::AGAIN) => return Progress::Waiting,
                Err(_) => return Progress::Over,
            }
        }
    }

    /// Answers the greeting once it is complete; returns false if the connection must be closed.
    fn greet(&mut self, network: &Network) -> bool {
        let wanted = mode(network);
        let theirs = self.reader.peek();
        if theirs.len() < PREAMBLE {
            return MAGIC.starts_with(&theirs[..theirs.len().min(MAGIC.len())])
                || theirs.starts_with(MAGIC);
        }
        if theirs[..PREAMBLE] != preamble(wanted) {
            let _ = self.writer.write(&preamble(wanted));
            return false;
        }
        let Some(key) = &network.key else {
            self.reader.take(PREAMBLE);
            self.greeted = self.writer.write(&preamble(wanted)) == Ok(PREAMBLE);
            return self.greeted;
        };
        if theirs.len() < PREAMBLE + HANDSHAKE {
            return true;
        }
        self.reader.take(PREAMBLE);
        let message = self.reader.take(HANDSHAKE);
        let Ok(mut state) = handshake(key, false) else { return false };
        if state.read_message(&message[2..], &mut [0; HANDSHAKE]).is_err() {
            let _ = self.writer.write(&preamble(Mode::WrongKey));
            return false;
        }
        let Ok(answer) = next_message(&mut state) else { return false };
        let answer = [&preamble(wanted)[..], &answer].concat();
        // The buffer of a new connection has room for it.
        self.greeted = self.writer.write(&answer) == Ok(answer.len())
            && seal(state, &mut self.writer, &mut self.reader).is_ok();
        self.greeted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    use crossway_sys::poll::{Interest, wait_ready};

    fn network(key: Option<&Key>) -> Network {
        Network { key: key.cloned(), ..Network::default() }
    }

    fn connection() -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        (Stream::tcp(here.into()).unwrap(), Stream::tcp(there.into()).unwrap())
    }

    /// Performs a greeting between two sides; returns the connector's result and the first frame that the listener
    /// received, if any.
    fn meet(ours: &Network, theirs: &Network) -> (Result<(), BadGreeting>, Option<Vec<u8>>) {
        let (here, there) = connection();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let (mut writer, _reader) = greet(there, theirs, None)?;
                writer.write_frame(&vec![7; 100_000], None).unwrap();
                Ok(())
            });
            let mut incoming = Incoming::new(here);
            let asks = loop {
                match incoming.read(ours, 100_000) {
                    Progress::Waiting => {
                        wait_ready(incoming.stream(), Interest::Readable, None).unwrap();
                    }
                    Progress::Asks(frame) => break Some(frame),
                    Progress::Over => break None,
                }
            };
            drop(incoming);
            (asking.join().unwrap(), asks)
        })
    }

    #[test]
    fn the_same_key_or_none_at_both_ends_agree_and_nothing_else_does() {
        let [one, other] = [(); 2].map(|()| Key::generate().unwrap());
        for key in [None, Some(&one)] {
            let (greeted, asks) = meet(&network(key), &network(key));
            greeted.unwrap();
            assert_eq!(asks, Some(vec![7; 100_000]));
        }
        for (ours, theirs, why) in [
            (Some(&one), None, "demands a key"),
            (None, Some(&one), "has no key"),
            (Some(&one), Some(&other), "is different"),
        ] {
            let (greeted, asks) = meet(&network(ours), &network(theirs));
            assert_eq!(asks, None, "nothing is listened to");
            match greeted {
                Err(BadGreeting::Disagreed(text)) => assert!(text.contains(why), "{text}"),
                _ => panic!("they agree"),
            }
        }
    }

    #[test]
    fn what_is_sealed_is_not_to_be_read_and_not_to_be_changed() {
        let key = Key::generate().unwrap();
        let with_key = network(Some(&key));
        let (here, there) = connection();
        let answering = std::thread::spawn({
            let with_key = with_key.clone();
            move || {
                let mut incoming = Incoming::new(here);
                while !matches!(incoming.read(&with_key, 100), Progress::Asks(_)) {
                    wait_ready(incoming.stream(), Interest::Readable, None).unwrap();
                }
                incoming.into_ends()
            }
        });
        let (mut writer, _reader) = greet(there, &with_key, None).unwrap();
        writer.write_frame(b"first", None).unwrap();
        let (_, mut reader) = answering.join().unwrap();
        let secret = b"nobody else reads this";
        writer.write_frame(secret, None).unwrap();
        let mut raw = Vec::new();
        while reader.stream().try_recv(&mut raw, 64 << 10).is_err() {
            wait_ready(&**reader.stream(), Interest::Readable, None).unwrap();
        }
        assert!(!raw.windows(secret.len()).any(|window| window == secret));
        *raw.last_mut().unwrap() ^= 1;
        reader.replace_sealed(raw);
        assert_eq!(reader.fill(), Err(Errno::BADMSG));
    }
}
