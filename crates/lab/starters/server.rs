//! Answers each message with the same bytes: ./server ADDRESS

mod channel;

fn serve(socket: channel::Socket) -> std::io::Result<()> {
    channel::set_up(&socket)?;
    loop {
        match channel::receive(&socket) {
            Ok(message) => channel::send(&socket, &message)?,
            // The client is silent; it may stay connected.
            Err(error) if channel::timed_out(&error) => {}
            // The client closed, died or violated the protocol: only its own connection ends.
            Err(error) => return Err(error),
        }
    }
}

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).expect("usage: server ADDRESS");
    if @UNIX@ && channel::Socket::connect(&address).is_err() {
        // A server that was killed leaves its path behind; a live one would have answered.
        let _ = std::fs::remove_file(&address);
    }
    let listener = channel::Listener::bind(&address)?;
    println!("ready");
    for socket in listener.incoming() {
        let socket = socket?;
        std::thread::spawn(move || serve(socket));
    }
    Ok(())
}
