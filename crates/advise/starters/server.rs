//! Answers each message with the same bytes: @SERVER_USE@

mod channel;

fn serve(mut link: channel::Channel) -> std::io::Result<()> {
@if dgram
    // Nothing reports the death of a client: one that is silent for a minute has gone.
    let mut silent = 0;
@end
    loop {
        match link.receive()? {
            Some(message) => link.send(&message)?,
@if stream
            None => {} // The client is silent; it may stay connected.
@end
@if dgram
            None if silent >= 30 => return Ok(()),
            None => {
                silent += 1;
                continue;
            }
@end
        }
@if dgram
        silent = 0;
@end
    }
}

fn main() -> std::io::Result<()> {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: @SERVER_USE@");
        std::process::exit(2);
    };
    let listener = channel::Listener::bind(&address)?;
    eprintln!("ready");
    listener.serve_all(serve)
}
