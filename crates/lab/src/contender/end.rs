//! One end of a contender's channel, controlled directly instead of through a role. The conformance suite and the fault
//! matrix use it for programs that they kill.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Launch;
use super::content::{Content, ContentKey, SharedFile};
use super::program::{Program, ProgramError};
use super::protocol::{Ask, Greeting, Reply, VERSION};

/// Size of the memory with the payload, bytes.
const WORKING_SET_BYTES: u64 = 64 << 10;

fn out_of_turn(order: &'static str, wanted: &'static str, got: &Reply) -> ProgramError {
    ProgramError::OutOfTurn { order: Some(order), wanted, got: got.name() }
}

/// The result of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windowed {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) out_of_order: u64,
}

/// An end whose program has sent its greeting.
#[derive(Debug)]
pub(crate) struct End {
    program: Program,
    greeting: Greeting,
    spins: bool,
    listens: bool,
    sends: bool,
    /// The content that the sending end sends, known at both ends.
    content: Content,
    payload: SharedFile,
}

impl End {
    /// Starts the contender's program and waits for its greeting.
    pub(crate) fn start(
        launch: &Launch,
        listens: bool,
        sends: bool,
        size_bytes: u64,
        limit: Duration,
    ) -> Result<End, ProgramError> {
        let mut program = Program::start(launch, None)?;
        let greeting = program.greeting(limit)?;
        let from_connector = listens != sends;
        let key = ContentKey { secret: launch.secret, from_connector, sender: 0, window: 0 };
        let content = Content::new(size_bytes as usize, WORKING_SET_BYTES, key);
        let payload = SharedFile::new("crossway-payload", content.bytes().len())?;
        payload.write(content.bytes())?;
        let spins = !launch.caps.can_block;
        Ok(End { program, greeting, spins, listens, sends, content, payload })
    }

    /// Makes the connecting end also remove the objects in `/dev/shm` that it created under the listening end's prefix.
    pub(crate) fn share_memory(&mut self, listener: &End) -> Result<(), ProgramError> {
        Ok(self.program.share_memory(listener.program.shm_prefix().to_owned())?)
    }

    /// Opens the channel between two ends whose programs were started.
    ///
    /// # Errors
    /// Returns the error, and `true` if the listening end failed, `false` if the connecting end did.
    pub(crate) fn join(
        listener: &mut End,
        connector: &mut End,
        limit: Duration,
    ) -> Result<(), (bool, ProgramError)> {
        let of_listener = |error| (true, error);
        let of_connector = |error| (false, error);
        let words = listener.begin(limit).map_err(of_listener)?;
        connector.begin(limit).map_err(of_connector)?;
        listener.program.tell("accept", &Ask::Accept).map_err(of_listener)?;
        connector.program.tell("connect", &Ask::Connect { words }).map_err(of_connector)?;
        connector.opened("connect", limit).map_err(of_connector)?;
        listener.opened("accept", limit).map_err(of_listener)
    }

    fn begin(&mut self, limit: Duration) -> Result<BTreeMap<String, String>, ProgramError> {
        let part = if self.sends { "sender" } else { "receiver" };
        let order = Ask::Begin {
            protocol: VERSION,
            part: part.to_owned(),
            listens: self.listens,
            size_bytes: self.content.size() as u64,
            wait: if self.spins { "spin" } else { "block" }.to_owned(),
            cpu: None,
            bind: "127.0.0.1".to_owned(),
            dir: self.program.dir().to_owned(),
            shm_prefix: self.program.shm_prefix().to_owned(),
            capacity_bytes: None,
            socket_buffer_bytes: None,
        };
        self.program.tell("begin", &order)?;
        match self.program.hear("begin", Some(limit))? {
            Reply::Offer { words, .. } => Ok(words),
            other => Err(out_of_turn("begin", "offer", &other)),
        }
    }

    fn opened(&mut self, order: &'static str, limit: Duration) -> Result<(), ProgramError> {
        match self.program.hear(order, Some(limit))? {
            Reply::Opened { .. } => Ok(()),
            other => Err(out_of_turn(order, "opened", &other)),
        }
    }

    /// Starts sending or receiving `messages` messages, without waiting for completion.
    pub(crate) fn go(&mut self, messages: u64, limit: Duration) -> Result<(), ProgramError> {
        let payload = self.sends.then(|| self.content.described(self.payload.path()));
        let first = if self.sends { self.content.first } else { 0 };
        self.program.tell("prepare", &Ask::Prepare { messages, batch: 1, first, payload })?;
        match self.program.hear("prepare", Some(limit))? {
            Reply::Ready => self.program.tell("go", &Ask::Go),
            other => Err(out_of_turn("prepare", "ready", &other)),
        }
    }

    /// Waits until the messages have been sent or received.
    pub(crate) fn done(&mut self, limit: Duration) -> Result<Windowed, ProgramError> {
        match self.program.hear("go", Some(limit))? {
            Reply::Done { sent, received, out_of_order, .. } => {
                Ok(Windowed { sent, received, out_of_order })
            }
            other => Err(out_of_turn("go", "done", &other)),
        }
    }

    /// Whether the program has already answered or exited.
    pub(crate) fn has_answered(&self) -> bool {
        self.program.has_answered()
    }

    /// Whether the messages received in the window are those that were sent, byte by byte and in order.
    pub(crate) fn is_genuine(
        &mut self,
        window: Windowed,
        limit: Duration,
    ) -> Result<bool, ProgramError> {
        self.program.tell("result", &Ask::Result)?;
        match self.program.hear("result", Some(limit))? {
            Reply::Result { checksum, .. } => {
                let said = checksum.and_then(|text| u64::from_str_radix(&text, 16).ok());
                let right = self.content.checksum(window.received, self.greeting.checksum);
                Ok(said == Some(right) && window.out_of_order == 0)
            }
            other => Err(out_of_turn("result", "result", &other)),
        }
    }

    /// Makes the program close the channel and exit.
    pub(crate) fn close(&mut self, limit: Duration) -> Result<(), ProgramError> {
        self.program.tell("close", &Ask::Close)?;
        match self.program.hear("close", Some(limit))? {
            Reply::Closed => Ok(()),
            other => Err(out_of_turn("close", "closed", &other)),
        }
    }

    /// Kills the program and waits until it is dead; processes that it started keep running.
    pub(crate) fn kill(&mut self) {
        self.program.kill();
    }

    /// The process id of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// The library that the program measures, with its version.
    pub(crate) fn library(&self) -> &str {
        &self.greeting.library
    }
}
