//! What a list of a million names costs: time to read it, memory, and the time for a name that is on it or
//! not.
//! `cargo bench --workspace --bench lists`

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement ends where something cannot be set up, and prints its table"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use dnsweir_answer::identity::Identity;
use dnsweir_answer::{Question, Resolution, Upkeep as _};
use dnsweir_config::{self as config, SourceConfig, Stage};
use dnsweir_lists::{Known, Lists};
use dnsweir_wire::dns::name::Name;
use dnsweir_wire::dns::suffix_map::SuffixMap;
use dnsweir_wire::dns::{CLASS_IN, rtype};

/// Names on the list, and as many that are not.
const NAMES: usize = 1_000_000;

/// Names asked for.
const ASKED: usize = 200_000;

/// Parts of names, typical of trackers.
const PARTS: [&str; 16] = [
    "ad",
    "track",
    "pixel",
    "stat",
    "metric",
    "click",
    "tag",
    "media",
    "cdn",
    "api",
    "beacon",
    "push",
    "promo",
    "analytics",
    "shop",
    "cloud",
];

/// Suffixes of names, and how many in sixteen have each.
const ENDS: [(&str, usize); 6] = [
    ("com", 8),
    ("net", 2),
    ("org", 1),
    ("ru", 1),
    ("co.uk", 1),
    ("cloudfront.net", 3),
];

/// Pseudo-random numbers, the same each time (xorshift, Marsaglia 2003).
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        for _ in 0..self.below(3) {
            let _ = write!(name, "{}{}.", PARTS[self.below(16)], self.below(1000));
        }
        let (part, other, number) = (
            PARTS[self.below(16)],
            PARTS[self.below(16)],
            self.below(1_000_000),
        );
        let mut at = self.below(16);
        let end = ENDS.iter().find(|(_, share)| {
            let is_it = at < *share;
            at = at.saturating_sub(*share);
            is_it
        });
        let _ = write!(name, "{part}{other}{number}.{}", end.map_or("com", |end| end.0));
        name
    }
}

fn main() {
    let mut drawn = Drawn(88_172_645_463_325_252);
    let mut names = BTreeSet::new();
    while names.len() < 2 * NAMES {
        names.insert(drawn.name());
    }
    // Every second name.
    let (listed, others): (Vec<_>, Vec<_>) = names
        .into_iter()
        .enumerate()
        .partition(|(index, _)| index % 2 == 0);
    let folder = tempfile::tempdir().expect("a folder");
    let text: String = listed
        .iter()
        .map(|(_, name)| format!("0.0.0.0 {name}\n"))
        .collect();
    std::fs::write(folder.path().join("list"), &text).expect("a list");
    let octets: usize = listed.iter().map(|(_, name)| name.len()).sum();
    println!(
        "{NAMES} names of {} octets, {} MiB of text",
        octets / NAMES,
        text.len() >> 20
    );

    let text = "listen \"127.0.0.1\"\nzone \".\" { lists { list \"l\" { source \"list\" }; wait \"1h\" }; forward \"192.0.2.1\" }";
    let config = config::parse("bench", text, folder.path(), &[]).expect("a configuration");
    let Some(Stage::Source(SourceConfig::Lists(config))) = config.zones[0].stages.first() else {
        return;
    };
    let (lists, begun) = (Lists::new(config, &Known::default()), Instant::now());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(lists.bring_up());
    println!("read in {:.2} s", begun.elapsed().as_secs_f64());
    println!("{}", lists.status().text);

    let shuffled = |names: &[(usize, String)], drawn: &mut Drawn| -> Vec<Name> {
        let picked = (0..ASKED).map(|_| &names[drawn.below(names.len())].1);
        picked.map(|name| Name::parse(name).expect("a name")).collect()
    };
    for (what, names) in [("on it", &listed), ("not on it", &others)] {
        let all = shuffled(names, &mut drawn);
        let few: Vec<Name> = all[..1000].iter().cycle().take(ASKED).cloned().collect();
        for (how, asked) in [("any", all), ("of a thousand", few)] {
            let begun = Instant::now();
            let found = asked.iter().filter(|name| is_blocked(&lists, name)).count();
            println!(
                "{what}, {how}: {} ns, {found} found",
                begun.elapsed().as_nanos() / ASKED as u128
            );
        }
    }
}

fn is_blocked(lists: &Lists, name: &Name) -> bool {
    let (zone, zones) = (Name::ROOT, SuffixMap::default());
    let question = Question {
        name: black_box(name.as_bytes()),
        qtype: rtype::A,
        qclass: CLASS_IN,
        flags: 0,
        dnssec_ok: false,
        subnet: None,
        signed: None,
        room: 512,
        client: [127, 0, 0, 1].into(),
        identity: &Identity::Unknown,
        zone: &zone,
        zones: &zones,
        tap: None,
        direct: true,
        traced: false,
    };
    !matches!(lists.immediate(&question), Resolution::NotMine)
}
