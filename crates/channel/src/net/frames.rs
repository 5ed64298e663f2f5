//! Frames over a connection, sealed by Noise or plain, and the greeting that agrees on which.
//!
//! Each side begins with a preamble that says whether it demands a key. Of two sides that differ neither goes on: a key is refused rather than
//! forgotten. With a key follows the handshake Noise_NNpsk0: whoever does not have the key is turned away at its first message, and what is
//! recorded cannot be read with the key later. A frame is a length of four bytes and that many more; sealed, the bytes of frames travel in records.

use std::sync::Arc;
use std::time::Instant;

use crossway_mech::Deadline;
use crossway_sys::Errno;
use crossway_sys::poll::{Interest, wait_ready};
use snow::{Builder, HandshakeState, StatelessTransportState};

use super::network::{Key, Network};
use super::stream::Stream;
use crate::message::Message;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const MAGIC: &[u8; 6] = b"CWCHAN";
const VERSION: u8 = 1;
const PREAMBLE: usize = MAGIC.len() + 2;
/// A handshake message of an ephemeral key and a tag, behind its length.
const HANDSHAKE: usize = 2 + 32 + TAG;
const TAG: usize = 16;
/// The longest record: its length is in two bytes.
const RECORD: usize = u16::MAX as usize;
/// Read at once.
const CHUNK: usize = 64 << 10;
/// Bytes of a frame's length.
pub(crate) const HEADER: usize = 4;

/// What a side demands, in its preamble.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain = 0,
    Key = 1,
    /// The answer to a key that is another one.
    WrongKey = 2,
}

const fn preamble(mode: Mode) -> [u8; PREAMBLE] {
    let [a, b, c, d, e, f] = *MAGIC;
    [a, b, c, d, e, f, VERSION, mode as u8]
}

const fn mode(network: &Network) -> Mode {
    if network.key.is_some() { Mode::Key } else { Mode::Plain }
}

/// Why two sides do not go on.
#[derive(Debug)]
pub(crate) enum BadGreeting {
    /// The connection broke or the time was up, in words.
    Broken(String),
    /// They do not agree on a key, or the other one speaks something else, in words.
    Disagreed(String),
}

fn handshake(key: &Key, initiator: bool) -> Result<HandshakeState, snow::Error> {
    let prologue = preamble(Mode::Key);
    let builder = Builder::new(PATTERN.parse()?).prologue(&prologue)?.psk(0, key.bytes())?;
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

/// The next handshake message, behind its length.
fn next_message(state: &mut HandshakeState) -> Result<Vec<u8>, snow::Error> {
    let mut message = vec![0; HANDSHAKE];
    let len = state.write_message(&[], &mut message[2..])?;
    message.truncate(2 + len);
    message[..2].copy_from_slice(&(len as u16).to_le_bytes());
    Ok(message)
}

/// Greets the other side of a fresh connection, as the one that connected.
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

const WRONG_KEY: &str = "its key is another one; give both ends the same key file";

fn check_preamble(answer: &[u8; PREAMBLE], wanted: Mode) -> Result<(), String> {
    let [magic @ .., version, theirs] = answer;
    if magic != MAGIC {
        return Err("it is no listener of channels".to_owned());
    }
    if *version != VERSION {
        return Err(format!("it speaks version {version} of the greeting, this end {VERSION}"));
    }
    match *theirs {
        theirs if theirs == wanted as u8 => Ok(()),
        theirs if theirs == Mode::WrongKey as u8 => Err(WRONG_KEY.to_owned()),
        theirs if theirs == Mode::Key as u8 => {
            Err("it demands a key and this end has none; set CROSSWAY_CHANNEL_KEY".to_owned())
        }
        _ => Err("it has no key and this end demands one; give it the same key file".to_owned()),
    }
}

/// From here on everything is sealed.
fn seal(
    state: HandshakeState,
    writer: &mut Writer,
    reader: &mut Reader,
) -> Result<(), snow::Error> {
    let transport = Arc::new(state.into_stateless_transport_mode()?);
    writer.seal = Some(Seal { transport: Arc::clone(&transport), nonce: 0 });
    // What came behind the handshake is sealed already.
    let raw = reader.take_rest();
    reader.seal = Some((Seal { transport, nonce: 0 }, raw));
    Ok(())
}

/// A fresh connection that was accepted and has not said yet what it wants.
pub(crate) struct Incoming {
    writer: Writer,
    reader: Reader,
    greeted: bool,
}

/// What came of it.
pub(crate) enum Progress {
    /// More must come.
    Waiting,
    /// Its first frame.
    Asks(Vec<u8>),
    /// It is to be closed.
    Over,
}

impl Incoming {
    pub(crate) fn new(stream: Stream) -> Incoming {
        let (writer, reader) = plain(stream);
        Incoming { writer, reader, greeted: false }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.reader.stream
    }

    pub(crate) fn into_ends(self) -> (Writer, Reader) {
        (self.writer, self.reader)
    }

    /// Reads what has come; frames are at most `longest`.
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

    /// Answers the greeting once it is complete; false if the connection is to be closed.
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
        // A fresh connection has room for it.
        self.greeted = self.writer.write(&answer) == Ok(answer.len())
            && seal(state, &mut self.writer, &mut self.reader).is_ok();
        self.greeted
    }
}

fn plain(stream: Stream) -> (Writer, Reader) {
    let stream = Arc::new(stream);
    let writer = Writer { stream: Arc::clone(&stream), seal: None, out: Vec::new(), at: 0 };
    (writer, Reader { stream, seal: None, bytes: Vec::new(), at: 0 })
}

/// One direction's share of the cipher.
struct Seal {
    transport: Arc<StatelessTransportState>,
    nonce: u64,
}

/// The sending direction.
pub(crate) struct Writer {
    stream: Arc<Stream>,
    seal: Option<Seal>,
    /// Sealed records that wait for room, from `at` on.
    out: Vec<u8>,
    at: usize,
}

impl Writer {
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Takes what there is room for; EAGAIN when there is none. What it took is out, or goes out with the next call.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.flush()?;
        let Some(seal) = &mut self.seal else { return self.stream.try_send(bytes) };
        let bytes = &bytes[..bytes.len().min(RECORD - TAG)];
        self.out.resize(2 + bytes.len() + TAG, 0);
        let len = seal
            .transport
            .write_message(seal.nonce, bytes, &mut self.out[2..])
            .map_err(|_| Errno::IO)?;
        seal.nonce += 1;
        self.out[..2].copy_from_slice(&(len as u16).to_le_bytes());
        match self.flush() {
            Ok(()) | Err(Errno::AGAIN) => Ok(bytes.len()),
            Err(errno) => Err(errno),
        }
    }

    /// Sends records that wait; EAGAIN if some still do.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        while self.at < self.out.len() {
            self.at += self.stream.try_send(&self.out[self.at..])?;
        }
        self.out.clear();
        self.at = 0;
        Ok(())
    }

    /// Sends everything, waiting for room.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8], until: Deadline) -> Result<(), Errno> {
        loop {
            let outcome =
                if bytes.is_empty() { self.flush().map(|()| 0) } else { self.write(bytes) };
            match outcome {
                Ok(_) if bytes.is_empty() => return Ok(()),
                Ok(taken) => bytes = &bytes[taken..],
                Err(Errno::AGAIN) => {
                    if !wait_ready(&*self.stream, Interest::Writable, until)? {
                        return Err(Errno::TIMEDOUT);
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sends a frame, waiting for room.
    pub(crate) fn write_frame(&mut self, frame: &[u8], until: Deadline) -> Result<(), Errno> {
        self.write_all(&framed(frame), until)
    }
}

/// Sends an answer on a new connection, whose buffer has room for it; if not, the peer sees the connection end.
pub(crate) fn write_now(writer: &mut Writer, message: &Message) {
    let text = serde_json::to_vec(message).expect("messages are plain data");
    let _ = writer.write_frame(&text, Some(Instant::now()));
}

/// A frame behind its length.
pub(crate) fn framed(frame: &[u8]) -> Vec<u8> {
    let len = u32::try_from(frame.len()).expect("a frame is shorter than 4 GiB");
    [&len.to_le_bytes()[..], frame].concat()
}

/// The receiving direction.
pub(crate) struct Reader {
    stream: Arc<Stream>,
    /// The cipher, and sealed bytes that are not a whole record yet.
    seal: Option<(Seal, Vec<u8>)>,
    /// What came and was not consumed, from `at` on.
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether something came that was not consumed.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.at < self.bytes.len()
    }

    fn peek(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let taken = self.bytes[self.at..self.at + len].to_vec();
        self.at += len;
        taken
    }

    fn take_rest(&mut self) -> Vec<u8> {
        self.take(self.bytes.len() - self.at)
    }

    /// Reads once; 0 at the end, EAGAIN when nothing is there. A record that was tampered with is EBADMSG.
    pub(crate) fn fill(&mut self) -> Result<usize, Errno> {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at >= CHUNK {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        let Some((seal, raw)) = &mut self.seal else {
            return self.stream.try_recv(&mut self.bytes, CHUNK);
        };
        let got = self.stream.try_recv(raw, CHUNK);
        let mut done = 0;
        while let Some(&[low, high]) = raw.get(done..done + 2) {
            let len = usize::from(u16::from_le_bytes([low, high]));
            let Some(record) = raw.get(done + 2..done + 2 + len) else { break };
            let before = self.bytes.len();
            self.bytes.resize(before + len, 0);
            let opened = seal.transport.read_message(seal.nonce, record, &mut self.bytes[before..]);
            let plain = opened.map_err(|_| Errno::BADMSG)?;
            self.bytes.truncate(before + plain);
            seal.nonce += 1;
            done += 2 + len;
        }
        raw.drain(..done);
        match got {
            // What came before the handshake was over may hold whole records.
            Err(Errno::AGAIN) if done > 0 => Ok(done),
            got => got,
        }
    }

    /// The length of the next frame, if all of it is there.
    ///
    /// # Errors
    /// In words: it is longer than `longest`.
    pub(crate) fn frame(&self, longest: usize) -> Result<Option<usize>, String> {
        let bytes = self.peek();
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let len = u32::from_le_bytes(*header) as usize;
        if len > longest {
            return Err(format!("a frame of {len} bytes, {longest} are allowed"));
        }
        Ok((bytes.len() >= HEADER + len).then_some(len))
    }

    /// The next frame, whose length [`Reader::frame`] told.
    pub(crate) fn show(&self, len: usize) -> &[u8] {
        &self.peek()[HEADER..HEADER + len]
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.at += HEADER + len;
    }

    fn wait(&mut self, until: Deadline) -> Result<(), Errno> {
        match self.fill() {
            Ok(0) => Err(Errno::CONNRESET),
            Ok(_) => Ok(()),
            Err(Errno::AGAIN) => match wait_ready(&*self.stream, Interest::Readable, until)? {
                true => Ok(()),
                false => Err(Errno::TIMEDOUT),
            },
            Err(errno) => Err(errno),
        }
    }

    fn need(&mut self, len: usize, until: Deadline) -> Result<(), Errno> {
        while self.peek().len() < len {
            self.wait(until)?;
        }
        Ok(())
    }

    /// The next frame, waiting for it.
    pub(crate) fn read_frame(&mut self, longest: usize, until: Deadline) -> Result<Vec<u8>, Errno> {
        loop {
            if let Some(len) = self.frame(longest).map_err(|_| Errno::BADMSG)? {
                let frame = self.show(len).to_vec();
                self.consume(len);
                return Ok(frame);
            }
            self.wait(until)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn network(key: Option<&Key>) -> Network {
        Network { key: key.cloned(), ..Network::default() }
    }

    fn connection() -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        (Stream::tcp(here.into()).unwrap(), Stream::tcp(there.into()).unwrap())
    }

    /// Greets on one side and answers on the other until the first frame or the end.
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
            (Some(&one), Some(&other), "another one"),
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
        while reader.stream.try_recv(&mut raw, CHUNK).is_err() {
            wait_ready(&*reader.stream, Interest::Readable, None).unwrap();
        }
        assert!(!raw.windows(secret.len()).any(|window| window == secret));
        *raw.last_mut().unwrap() ^= 1;
        reader.seal.as_mut().unwrap().1 = raw;
        assert_eq!(reader.fill(), Err(Errno::BADMSG));
    }
}
