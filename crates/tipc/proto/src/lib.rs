//! TIPC as a sans-IO state machine.
