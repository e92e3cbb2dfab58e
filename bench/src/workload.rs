//! The workloads: mixes of questions, each with a section in the report.

use std::net::Ipv4Addr;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::wire::{A, AAAA, Question};

/// A mix of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Workload {
    /// This many names, over and over.
    Hot(u32),
    /// A million names; the name of rank k is asked in proportion to 1/k.
    Zipf,
    /// A new name each time.
    Misses,
    /// 64 names that do not exist, over and over.
    Nxdomain,
    /// 64 names, an A and an AAAA question together from one socket, as glibc's `getaddrinfo` asks.
    Pairs,
    /// 64 names, pipelined over eight TCP connections (RFC 7766 section 6.2.1.1).
    Tcp,
    /// 64 names, from this many pairs of address and port.
    Sources(u32),
}

/// Names of the workloads that repeat a few.
const HOT: u32 = 64;

/// Default number of pairs of address and port.
const SOURCES: u32 = 10_000;

/// The largest number in a workload's name.
const LIMIT: u32 = 10_000_000;

/// Names of [`Workload::Zipf`].
const MILLION: u32 = 1_000_000;

/// Ranks of [`Workload::Zipf`] that are asked for once before measuring.
const ZIPF_WARM: u32 = 100_000;

/// The range of numbers that one measurement of [`Workload::Misses`] stays within.
const STRETCH: u32 = 20_000_000;

impl Workload {
    /// The workload of hot names.
    pub const HOT: Workload = Workload::Hot(HOT);

    /// All, in the order of the report.
    pub const ALL: [Workload; 7] = [
        Workload::HOT,
        Workload::Zipf,
        Workload::Misses,
        Workload::Nxdomain,
        Workload::Pairs,
        Workload::Tcp,
        Workload::Sources(SOURCES),
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> String {
        match self {
            Workload::HOT => "hot".to_owned(),
            Workload::Hot(names) => format!("hot-{names}"),
            Workload::Zipf => "zipf".to_owned(),
            Workload::Misses => "misses".to_owned(),
            Workload::Nxdomain => "nxdomain".to_owned(),
            Workload::Pairs => "pairs".to_owned(),
            Workload::Tcp => "tcp".to_owned(),
            Workload::Sources(SOURCES) => "sources".to_owned(),
            Workload::Sources(sources) => format!("sources-{sources}"),
        }
    }

    /// Returns its title in the report.
    pub fn title(self) -> String {
        let fixed = match self {
            Workload::Hot(names) => {
                return format!("Hot names: {} names, all in the cache", grouped(names.into()));
            }
            Workload::Zipf => "A million names, rank k asked in proportion to 1/k",
            Workload::Misses => "Misses: every name for the first time",
            Workload::Nxdomain => "64 names that do not exist, all in the cache",
            Workload::Pairs => "A and AAAA at once, as glibc asks; 64 names, all in the cache",
            Workload::Tcp => "TCP: 64 names, all in the cache, pipelined over 8 connections",
            Workload::Sources(sources) => {
                return format!("{} sources: 64 names, all in the cache", grouped(sources.into()));
            }
        };
        fixed.to_owned()
    }

    fn find(name: &str) -> Option<Workload> {
        if let Some((kind, number)) = name.split_once('-') {
            let number = number
                .parse()
                .ok()
                .filter(|number| (1..=LIMIT).contains(number))?;
            return match kind {
                "hot" => Some(Workload::Hot(number)),
                "sources" => Some(Workload::Sources(number)),
                _ => None,
            };
        }
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Returns the default rates, in queries per second. Lower where most queries are misses: a load that
    /// most servers cannot carry measures how they drop.
    pub fn rates(self) -> &'static [u32] {
        match self {
            Workload::Misses => &[2_000, 10_000],
            Workload::Zipf => &[10_000, 20_000],
            _ => &[10_000, 60_000],
        }
    }

    /// Whether it is asked over TCP.
    pub fn over_tcp(self) -> bool {
        self == Workload::Tcp
    }

    /// Whether the names exist.
    pub fn exists(self) -> bool {
        self != Workload::Nxdomain
    }

    /// Returns where queries come from: addresses, and how many sockets use each.
    pub fn sources(self) -> (Vec<Ipv4Addr>, usize) {
        match self {
            // A socket may send from any address of this machine: 1250 of them on 8 ports make 10 000.
            Workload::Sources(sources) => {
                let address = |n: u32| Ipv4Addr::from(0x7f64_0001 + n);
                let ports = [8, 4, 2].into_iter().find(|ports| sources % ports == 0);
                let ports = ports.unwrap_or(1);
                ((0..sources / ports).map(address).collect(), ports as usize)
            }
            _ => (Vec::new(), 8),
        }
    }

    /// Returns the questions of one measurement. The same `seed` gives the same questions, so that all
    /// servers are asked alike; with another, all names of [`Workload::Misses`] are new.
    pub fn questions(self, seed: u32) -> Questions {
        let next = match self {
            // The first range belongs to the warm-up.
            Workload::Misses => STRETCH * (1 + seed % 200),
            // Other names each time, if there are more than one measurement asks for.
            Workload::Hot(_) => seed.wrapping_mul(1_000_003),
            _ => 0,
        };
        Questions {
            workload: self,
            next,
            random: 0x9e37_79b9_7f4a_7c15 ^ (u64::from(seed) << 17),
        }
    }

    /// Returns the questions to ask once before measuring: how many, and a generator.
    pub fn warm_up(self) -> (u32, impl FnMut() -> Question) {
        let count = match self {
            Workload::Zipf => ZIPF_WARM,
            Workload::Misses => 500,
            Workload::Pairs => 2 * HOT,
            Workload::Hot(names) => names,
            _ => HOT,
        };
        let mut asked = 0;
        let each = move || {
            let number = if self == Workload::Pairs { asked / 2 } else { asked };
            let qtype = if self == Workload::Pairs && asked % 2 == 1 {
                AAAA
            } else {
                A
            };
            asked += 1;
            self.question(number, qtype)
        };
        (count, each)
    }

    fn question(self, number: u32, qtype: u16) -> Question {
        Question {
            letter: match self {
                Workload::Zipf => b'z',
                Workload::Misses => b'm',
                _ => b'h',
            },
            number,
            qtype,
            exists: self.exists(),
        }
    }
}

/// Parses its name; `hot` and `sources` take another number after a hyphen.
impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Workload, String> {
        Workload::find(name).ok_or_else(|| {
            let known = Workload::ALL.map(Workload::name).join(", ");
            format!("known are {known}, hot-N and sources-N")
        })
    }
}

impl TryFrom<String> for Workload {
    type Error = String;

    fn try_from(name: String) -> Result<Workload, String> {
        name.parse()
    }
}

impl From<Workload> for String {
    fn from(workload: Workload) -> String {
        workload.name()
    }
}

/// Formats a number as in the reports: 10 000.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// An endless sequence of questions.
pub struct Questions {
    workload: Workload,
    next: u32,
    random: u64,
}

impl Questions {
    /// Returns the next question.
    pub fn next(&mut self) -> Question {
        let next = self.next;
        self.next = next.wrapping_add(1);
        match self.workload {
            Workload::Zipf => {
                let rank = rank(self.random());
                self.workload.question(rank, A)
            }
            Workload::Misses => self.workload.question(next, A),
            Workload::Pairs => {
                let qtype = if next.is_multiple_of(2) { A } else { AAAA };
                self.workload.question(next / 2 % HOT, qtype)
            }
            // Each name in turn, but not in the order in which they were cached: the multiplier is a prime.
            Workload::Hot(names) => {
                let number = u64::from(next) * 2_654_435_761 % u64::from(names);
                self.workload.question(number as u32, A)
            }
            _ => self.workload.question(next % HOT, A),
        }
    }

    /// Xorshift64*.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Returns a rank from 0 by Zipf's law with exponent 1, in its form for a continuous rank: its logarithm is
/// uniform.
fn rank(random: u64) -> u32 {
    let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
    let rank = (uniform * f64::from(MILLION + 1).ln()).exp();
    (rank as u32).clamp(1, MILLION) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn zipf_asks_ranks_in_proportion_to_their_inverse() {
        let mut questions = Workload::Zipf.questions(1);
        let mut counts = vec![0_u32; MILLION as usize];
        let draws = 1_000_000;
        for _ in 0..draws {
            counts[questions.next().number as usize] += 1;
        }
        // The share of ranks up to k is ln(k + 1) / ln(N + 1).
        for k in [1_usize, 10, 1000, 100_000] {
            let share = f64::from(counts[..k].iter().sum::<u32>()) / f64::from(draws);
            let law = (k as f64 + 1.0).ln() / f64::from(MILLION + 1).ln();
            assert!((share - law).abs() < 0.005, "{k}: {share}, the law says {law}");
        }
    }

    #[test]
    fn misses_are_never_asked_twice() {
        let mut seen = HashSet::new();
        let (count, mut warm) = Workload::Misses.warm_up();
        for _ in 0..count {
            assert!(seen.insert(warm().number));
        }
        for seed in 0..5 {
            let mut questions = Workload::Misses.questions(seed);
            for _ in 0..10_000 {
                assert!(seen.insert(questions.next().number));
            }
        }
    }

    #[test]
    fn pairs_ask_one_name_for_both_types() {
        let mut questions = Workload::Pairs.questions(0);
        for _ in 0..100 {
            let (first, second) = (questions.next(), questions.next());
            assert_eq!((first.qtype, second.qtype), (A, AAAA));
            assert_eq!(first.number, second.number);
        }
    }

    #[test]
    fn the_warm_up_asks_everything_that_is_asked_later() {
        for workload in [
            Workload::HOT,
            Workload::Hot(9),
            Workload::Nxdomain,
            Workload::Pairs,
        ] {
            let (count, mut warm) = workload.warm_up();
            let warm: Vec<_> = (0..count).map(|_| warm()).collect();
            let mut questions = workload.questions(3);
            for _ in 0..1000 {
                assert!(warm.contains(&questions.next()));
            }
        }
    }

    #[test]
    fn hot_names_are_asked_equally_often() {
        for names in [1, 64, 1000] {
            let mut questions = Workload::Hot(names).questions(0);
            let asked: HashSet<u32> = (0..names).map(|_| questions.next().number).collect();
            assert_eq!(asked, (0..names).collect());
        }
    }

    #[test]
    fn what_is_no_workload_is_not_found() {
        for name in ["", "warm", "hot-", "hot-0", "hot-x", "zipf-3", "hot-99999999"] {
            assert_eq!(Workload::find(name), None, "{name}");
        }
        let digits = [7, 640, 6400, 1_234_567].map(grouped);
        assert_eq!(digits, ["7", "640", "6 400", "1 234 567"]);
    }

    #[test]
    fn equal_seeds_ask_alike() {
        let numbered = [Workload::Hot(1000), Workload::Sources(1)];
        for workload in Workload::ALL.into_iter().chain(numbered) {
            assert_eq!(Workload::find(&workload.name()), Some(workload));
            let (mut one, mut other) = (workload.questions(7), workload.questions(7));
            assert!((0..1000).all(|_| one.next() == other.next()));
        }
    }
}
