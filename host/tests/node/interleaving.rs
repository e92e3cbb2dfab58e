//! Whatever comes in whatever order, the node ends in the desired state or in none of it.

use std::time::Duration;

use super::falling::CONFIG;
use super::world::{KubeProxy, World, same};

/// A small generator, so that a failure can be repeated by its seed.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        // Numerical Recipes' constants.
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

#[test]
#[ignore = "needs root"]
fn two_hundred_interleavings_end_well() {
    let world = World::new(KubeProxy::Iptables);
    world.script(
        "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
    );
    let nothing = world.network();
    let reduced = CONFIG.replace(
        "\"10.96.0.10\" \"fd00:96::10\"\nworkers",
        "\"10.96.0.10\"\nworkers",
    );
    let bypass = CONFIG.replace("iptables;", "iptables; mode \"bypass\";");
    let configs = [CONFIG, &reduced, &bypass];
    for round in 0..200 {
        let mut dice = Dice(round);
        let mut running = Some(world.launch(CONFIG));
        for _ in 0..4 {
            match dice.throw(5) {
                0 => {
                    world.write(configs[dice.throw(3) as usize]);
                    if let Some(proxy) = &running {
                        proxy.signal(libc::SIGHUP);
                    }
                }
                // Without the signals' handlers in place, a start that is that young just ends.
                1 => {
                    if let Some(proxy) = running.take() {
                        proxy.signal(libc::SIGTERM);
                        proxy.ended();
                    }
                }
                2 => {
                    world.script("iptables -w -t raw -F PREROUTING; ip6tables -w -t raw -F PREROUTING");
                }
                3 => {
                    if let Some(proxy) = running.take() {
                        proxy.kill();
                    }
                }
                _ => running = Some(world.launch(CONFIG)),
            }
            std::thread::sleep(Duration::from_millis(dice.throw(150)));
        }
        // Ends with a process that serves, or with one that was told to end.
        let last = world.start(CONFIG);
        drop(running);
        let status = world.dnsweir(&["node", "status"], CONFIG);
        assert!(
            status.status.success(),
            "round {round}: {}",
            String::from_utf8_lossy(&status.stdout)
        );
        last.signal(libc::SIGHUP);
        last.terminate();
        same(&world.network(), &nothing, &format!("round {round}"));
    }
}
