//! Starts, ends, kills and changes in any order leave the node in the desired state or clean.

use std::ops::Range;
use std::time::Duration;

use super::falling::CONFIG;
use super::world::{KubeProxy, World, place, same, terminate};

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
fn fifty_interleavings_end_well() {
    interleave(0..50);
}

#[test]
fn fifty_more_end_well() {
    interleave(50..100);
}

#[test]
fn the_third_fifty_end_well() {
    interleave(100..150);
}

#[test]
fn the_last_fifty_of_two_hundred_end_well() {
    interleave(150..200);
}

/// Runs these rounds in one world, each seeded with its number.
fn interleave(rounds: Range<u64>) {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    world.script(
        "for c in iptables ip6tables; do $c -w -t raw -A OUTPUT -p sctp; $c -w -A OUTPUT -p sctp; done",
    );
    let nothing = world.network();
    // One address per family and kind, since rules are written one by one.
    let listening = |on: &str| {
        let all = "\"10.96.0.10\" \"fd00:96::10\" \"169.254.20.10\" \"fd00:20::10\"\nworkers";
        CONFIG.replace(all, &format!("{on}\nworkers"))
    };
    let config = listening("\"10.96.0.10\" \"fd00:20::10\"");
    let reduced = listening("\"10.96.0.10\"");
    let bypass = config.replace("iptables;", "iptables; mode \"bypass\";");
    let configs = [&config, &reduced, &bypass];
    for round in rounds {
        let mut dice = Dice(round);
        let mut running = Some(world.launch(&config));
        for _ in 0..4 {
            match dice.throw(5) {
                0 => {
                    world.write(configs[dice.throw(3) as usize]);
                    if let Some(proxy) = &running {
                        proxy.signal("HUP");
                    }
                }
                // A process too young to have its signal handlers just ends.
                1 => {
                    if let Some(mut proxy) = running.take() {
                        proxy.signal("TERM");
                        proxy.ended();
                    }
                }
                2 => {
                    world.script("iptables -w -t raw -F PREROUTING; ip6tables -w -t raw -F PREROUTING; nft delete table inet dnsweir 2> /dev/null || true");
                }
                3 => {
                    if let Some(mut proxy) = running.take() {
                        proxy.stop();
                    }
                }
                _ => running = Some(world.launch(&config)),
            }
            std::thread::sleep(Duration::from_millis(dice.throw(150)));
        }
        // Every round ends with one process that serves, and then with none.
        let last = world.start(&config);
        drop(running);
        let status = world.dnsweir(&["node", "status"], &config);
        assert!(
            status.status.success(),
            "round {round}: {}",
            String::from_utf8_lossy(&status.stdout)
        );
        last.signal("HUP");
        terminate(last);
        same(&world.network(), &nothing, &format!("round {round}"));
    }
}
