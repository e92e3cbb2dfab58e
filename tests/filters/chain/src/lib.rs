//! Half of a chain. As `first`, it renames queries to a name with the number of its build; as `last`, it
//! answers such names with its own number and passes all others. Two filters of one build answer together,
//! two of different builds do not.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dnsweir_filter::{Answer, Filter, Invalid, Manifest, NameBuf, Query, Rdata, Rewrite, Setup, Verdict};

/// Tests patch another number into the finished module, which makes it another build.
static BUILD: [u8; 14] = *b"build-00000000";

/// How long verdicts may be remembered: longer than any build stays.
const HOUR: Duration = Duration::from_secs(3600);

struct Chain {
    first: bool,
    marked: NameBuf,
}

impl Filter for Chain {
    fn configure(setup: Setup<'_>) -> Result<(Chain, Manifest), Invalid> {
        let first = !setup.config().nodes(&["first", "last"])[0]
            .name()
            .starts_with("last");
        // Keeps the compiler from using the constant.
        let label = String::from_utf8_lossy(std::hint::black_box(&BUILD));
        let Ok(marked) = label.parse() else {
            panic!("{label} is a name");
        };
        Ok((Chain { first, marked }, Manifest::new().queries()))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        if self.first {
            return Verdict::rewrite(Rewrite::new().name(self.marked.clone())).remember(HOUR);
        }
        if query.name() != self.marked.as_name() {
            return Verdict::pass().remember(HOUR);
        }
        let address = Rdata::address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
        Verdict::answer(Answer::noerror().record(query.name(), HOUR, address)).remember(HOUR)
    }
}

dnsweir_filter::export!(Chain);
