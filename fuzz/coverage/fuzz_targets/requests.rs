//! Fuzz target for requests of programs to a `tipcd`: a request that is accepted is unchanged after it was encoded and
//! decoded again.
#![no_main]

use crossway_tipc_client::protocol::control::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(request) = Request::decode(bytes) else { return };
    let encoded = request.encode();
    assert_eq!(Request::decode(&encoded), Some(request));
});
