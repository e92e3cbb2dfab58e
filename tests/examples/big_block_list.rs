//! `big-block-list`: one list for all workers, and lists that replace each other.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{anything, configured, documented, start, upstream_says};
use crate::harness::{Proxy, Upstream, proxy, until};

/// The approximate size of a large list in bytes.
const LARGE: u64 = 100 << 20;

/// Writes a sorted list of this version and size, and moves it into place as a download would be.
fn write(file: &Path, version: &str, octets: u64) {
    let new = file.with_extension("new");
    let mut list = BufWriter::new(File::create(&new).expect("a list"));
    let mut written = 0;
    for number in 0.. {
        let line = format!("host-{number:09}.ads.example {version}\n");
        list.write_all(line.as_bytes()).expect("a list");
        written += line.len() as u64;
        if written >= octets {
            break;
        }
    }
    list.into_inner().expect("a list");
    fs::rename(new, file).expect("a list");
}

/// Why a name is blocked.
fn reason(proxy: &Proxy, name: &str) -> String {
    let answer = proxy.query_edns(name, "A");
    assert_eq!(answer.rcode(), "NXDOMAIN", "{name}: {answer}");
    let error = answer.find_option(15).expect("an extended error");
    String::from_utf8_lossy(&error[2..]).into_owned()
}

#[test]
fn the_documented_configuration_blocks_what_is_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("list.txt");
    fs::write(&list, "ads.example\ntrack.example tracker\n").expect("a list");
    let upstream = anything();
    let path = list.display().to_string();
    let replaced = [("/etc/dnsweir/big-block-list.txt", &*path)];
    let proxy = Proxy::start(&documented("big-block-list", upstream.address, &replaced));
    assert_eq!(reason(&proxy, "www.ads.example"), "");
    assert_eq!(reason(&proxy, "track.example"), "tracker");
    assert_eq!(
        proxy.query("www.example", "A").answers(),
        upstream_says("www.example")
    );
    // It exceeds the limit, and the old one stays.
    let large = folder.path().join("large");
    File::create(&large)
        .and_then(|file| file.set_len(1 << 30))
        .expect("a file");
    fs::rename(large, &list).expect("a list");
    let line = proxy.process.logged("it has 1073741824 bytes");
    assert!(line.contains(&path), "{line}");
    proxy.process.logged("`limits data=` allows (512MiB)");
    assert_eq!(reason(&proxy, "track.example"), "tracker");
}

/// The largest value of a figure until told to stop.
fn largest(figure: impl Fn() -> f64, stop: &AtomicBool) -> f64 {
    let mut largest: f64 = 0.0;
    while !stop.load(Ordering::Relaxed) {
        largest = largest.max(figure());
        std::thread::yield_now();
    }
    largest
}

/// Whether workers, generations and instances share the list shows in the process's shareable memory.
#[test]
fn a_large_list_is_there_once_and_is_replaced_without_a_lost_query() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("list.txt");
    write(&list, "v0", LARGE);
    let upstream = anything();
    let text = |rest: &str| {
        let config = format!("list (data)\"{}\"", list.display());
        format!(
            "workers 4\n{}\n{rest}",
            configured("big-block-list", &config, &upstream)
        )
    };
    let proxy = Proxy::start(&text(""));
    let shared = || proxy.process.memory("RssShmem") as f64 / LARGE as f64;
    assert!((0.95..1.1).contains(&shared()), "{} times", shared());
    // Something else changes, and then the filter's own section.
    proxy.reload(&text("local-zones"));
    proxy.reload(&text("local-zones").replace("time=\"1s\"", "time=\"900ms\""));
    assert!((0.95..1.1).contains(&shared()), "{} times", shared());
    assert_eq!(reason(&proxy, "www.host-000000000.ads.example"), "v0");
    let total = |part: &str| {
        proxy
            .metrics()
            .sum("dnsweir_memory_ceiling_bytes", &[("part", part)])
    };
    assert!(total("data") >= LARGE as f64);

    let stop = AtomicBool::new(false);
    let (asked, most) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut asked = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let name = format!("host-{:09}.ads.example", asked * 997 % 2_000_000);
                assert!(
                    ["v0", "v1", "v2"].contains(&reason(&proxy, &name).as_str()),
                    "{name}"
                );
                asked += 1;
            }
            asked
        });
        let most = scope.spawn(|| largest(shared, &stop));
        for version in ["v1", "v2"] {
            write(&list, version, LARGE);
            until("the next list to be in force", || {
                reason(&proxy, "host-000000007.ads.example") == version
            });
        }
        stop.store(true, Ordering::Relaxed);
        (
            client.join().expect("good answers"),
            most.join().expect("figures"),
        )
    });
    eprintln!("{asked} queries, at most {most:.2} times the list");
    assert!(asked > 100);
    assert!((1.9..2.1).contains(&most), "{most} times");
}

/// A list that is written in place is loaded only once it is complete.
#[test]
fn half_a_list_is_not_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("list.txt");
    fs::write(&list, "a.test v0\nb.test v0\n").expect("a list");
    let upstream = anything();
    let config = format!("list (data)\"{}\"", list.display());
    let proxy = start("big-block-list", &config, &upstream);
    let generation = proxy.generation();
    let mut slow = File::create(&list).expect("a list");
    for line in ["a.test v1\n", "b.te"] {
        slow.write_all(line.as_bytes()).expect("a list");
        slow.sync_all().expect("a list");
        // Much longer than files must be unchanged.
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            assert_eq!(reason(&proxy, "b.test"), "v0");
        }
    }
    assert_eq!(proxy.generation(), generation);
    slow.write_all(b"st v1\n").expect("a list");
    drop(slow);
    until("the list to be in force", || reason(&proxy, "b.test") == "v1");
}

/// In the form of `check`.
#[test]
fn a_list_that_cannot_be_taken_is_underlined() {
    let upstream: Upstream = anything();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dnsweir.kdl");
    let text = configured("big-block-list", "list (data)\"list.txt\"", &upstream);
    fs::write(&file, format!("listen \"127.0.0.1\"\n{text}")).expect("a configuration");
    let check = || {
        let output = proxy::check(&file);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (valid, said) = check();
    assert!(!valid && said.contains("No such file"), "{said}");
    let list = folder.path().join("list.txt");
    fs::write(&list, "b.test\na.test\nc.test\nb.test\n").expect("a list");
    let (valid, said) = check();
    assert!(!valid && said.contains("the list is not sorted"), "{said}");
    fs::write(&list, "a.test\nb.test\nc.test\n").expect("a list");
    assert!(check().0, "{}", check().1);
}
