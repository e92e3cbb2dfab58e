//! What this machine's kernel may lack: dummy links, IPVS and legacy iptables, in a user-mode Linux kernel.

use harness::guests::root;
use harness::{proxy, tools};

use super::world::place;

#[test]
fn a_kernel_with_dummy_links_ipvs_and_legacy_iptables() {
    let programs = ["linux.uml", "modprobe", "ipvsadm", "iptables-legacy", "dig", "cc"];
    let Some(_place) = place(&programs) else {
        return;
    };
    let mut command = std::process::Command::new(root().join("tests/user-mode-linux/run.sh"));
    println!("{}", tools::output(command.arg(proxy::program())));
}
