//! A clamped send buffer, found and lifted with nothing beside it. That the buffer binds shows in the time in which the
//! sending thread has filled it and the reading thread sleeps: a thread that waits for its core shortens both.

use results::End;
use testkit::root::is_root;

use crate::paced::tune_gain_root::{AS_PREDICTED, lifts_the_clamp};
use crate::tune_bed::LINK;

#[test]
fn root_a_clamped_send_buffer_is_lifted_as_predicted_and_restored() {
    if is_root() {
        let clamp = "sysctl = { \"net.ipv4.tcp_wmem\" = \"4096 131072 262144\" }";
        lifts_the_clamp("wmem", (LINK, &AS_PREDICTED), [clamp, ""], End::Near, "net.ipv4.tcp_wmem");
    }
}
