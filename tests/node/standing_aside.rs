//! Two processes that both keep running, as two installations on one node do: the older one stands aside, so
//! that either may stall.

use std::time::{Duration, Instant};

use harness::metrics::Metrics;
use harness::process::Process;
use harness::{proxy, tools, until};

use super::falling::{CONFIG, NOTICED, TAKEN, await_prompt, loads, settle};
use super::load::{Answer, Load, Protocol};
use super::standing_still::{Course, Stopped};
use super::world::{KubeProxy, LISTENED, World, place, terminate};

/// Starts two proxies, the first of which stands aside. Each has its own control socket.
fn two(world: &World, config: &str) -> [Process; 2] {
    let start = |control: &str| {
        let control = world.folder().join(control).display().to_string();
        let proxy = world.launch_with(config, &["--control", &control]);
        proxy.logged("answering queries");
        proxy
    };
    let older = start("older");
    let newer = start("newer");
    older.logged("standing aside until it is gone");
    [older, newer]
}

/// Whether a process reports itself healthy within a second.
fn is_well(world: &World, which: &str) -> bool {
    let mut command = std::process::Command::new("timeout");
    command
        .arg("1")
        .arg(proxy::program())
        .arg("health")
        .arg("--control");
    let done = command.arg(world.folder().join(which)).output().expect("timeout");
    done.status.success()
}

/// Without standing aside, 36 % of queries were lost while the older one stalled: its sockets kept taking
/// their share, and the newer one's heartbeats kept the rules leading there.
#[test]
fn either_of_two_may_stand_still() {
    let Some(_place) = place(&["timeout"]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let [older, mut newer] = two(&world, CONFIG);
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    assert_eq!(
        Metrics::parse(&metrics).sum("dnsweir_node_aside", &[]),
        0.0,
        "the newer one's"
    );
    let under_way = loads(&world, &LISTENED);
    settle();
    let stopped = Stopped::new(&older);
    assert_eq!(
        ["older", "newer"].map(|which| is_well(&world, which)),
        [false, true]
    );
    settle();
    drop(stopped);
    settle();
    for (name, load) in under_way {
        let fates = load.stop();
        assert!(fates.count() > 250, "{name}");
        let lost = fates.lost();
        assert_eq!(fates.of(Answer::Proxy), fates.count(), "{name}: {lost} lost");
    }
    // The newer one stalls.
    Course::of(&world, &LISTENED, || {
        let stopped = Stopped::new(&newer);
        assert_eq!(
            ["older", "newer"].map(|which| is_well(&world, which)),
            [true, false]
        );
        stopped
    })
    .check("the newer of two");
    newer.stop();
    older.logged("listening again");
    let (_, metrics) = world.admin("/metrics").expect("an answer");
    assert_eq!(Metrics::parse(&metrics).sum("dnsweir_node_aside", &[]), 0.0);
    terminate(older);
}

/// Without the cluster's DNS as a fallback, the older one takes over: immediately from a killed newer one,
/// and before an orderly one leaves.
#[test]
fn the_older_of_two_is_there_when_the_newer_one_ends() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    let config = CONFIG.replace("iptables;", "iptables; mode \"bypass\";");
    let [older, mut killed] = two(&world, &config);
    // Clients with a short timeout measure the silence, patient ones the losses.
    let impatient = LISTENED.map(|server| Load::impatient(&world.pod(), server, Protocol::Udp));
    let patient = LISTENED.map(|server| Load::start(&world.pod(), server, Protocol::Udp));
    settle();
    await_prompt(&world, &LISTENED);
    let killing = Instant::now();
    killed.stop();
    older.logged("listening again");
    settle();
    for (impatient, patient) in impatient.into_iter().zip(patient) {
        let (silence, fates) = (impatient.stop().silence(), patient.stop());
        println!(
            "killed: {} of {} lost, {silence:?} of silence",
            fates.lost(),
            fates.count()
        );
        assert!(silence < NOTICED, "{silence:?}");
        assert_eq!(fates.until(killing - TAKEN).lost(), 0);
        assert_eq!(fates.since(killing + NOTICED).lost(), 0);
    }
    let newer = world.start(&config);
    until("it to stand aside once more", || {
        let said = older.stderr();
        said.iter().filter(|line| line.contains("standing aside")).count() == 2
    });
    let loads = loads(&world, &LISTENED);
    settle();
    terminate(newer);
    settle();
    for (name, load) in loads {
        let fates = load.stop();
        let lost = fates.lost();
        assert_eq!(fates.of(Answer::Proxy), fates.count(), "{name}: {lost} lost");
    }
    terminate(older);
}

/// A process that cannot answer takes no queries from one that can.
#[test]
fn nobody_stands_aside_for_one_that_is_not_ready() {
    let Some(_place) = place(&[]) else { return };
    let world = World::new(KubeProxy::Iptables);
    // From its own file: the other one's configuration is not for this one.
    let file = world.folder().join("older.kdl");
    std::fs::write(&file, CONFIG.replace("9253", "9254")).expect("a configuration file");
    let mut command = world.on_node(&proxy::program().display().to_string());
    command.args(["run", "--config"]).arg(file);
    let older = Process::start(proxy::with_own_cache(&mut command));
    older.logged("answering queries");
    let bin = world.folder().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let env = tools::find("env").expect("env").display().to_string();
    // It finds no iptables.
    let newer = world.launch_by(&[&env, &format!("PATH={}", bin.display())], CONFIG);
    newer.logged("answering queries");
    let asked = Instant::now();
    until("some looks", || asked.elapsed() > Duration::from_secs(3));
    assert_eq!(world.admin("/ready").map(|(status, _)| status), Some(503));
    let said = older.stderr();
    assert!(
        !said.iter().any(|line| line.contains("standing aside")),
        "{said:?}"
    );
    for program in ["iptables", "ip6tables", "nft"] {
        let to = tools::find(program).unwrap_or_else(|| program.into());
        std::os::unix::fs::symlink(to, bin.join(program)).expect("a link");
    }
    older.logged("standing aside until it is gone");
}
