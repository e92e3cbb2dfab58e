//! A filter that uses the standard library like any program: a map with random keys, standard output, the
//! time, the environment, and a file with names to block.

#![cfg(target_family = "wasm")] // Nothing to be had from it elsewhere.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};
use std::{env, fs};

use dnsweir_filter::{Answer, Filter, Invalid, Manifest, Query, Rcode, Rdata, Setup, Verdict};

struct Standard {
    /// How often each name was asked for.
    asked: HashMap<String, u8>,
    blocked: Vec<String>,
    /// The path of the file with these names.
    list: String,
}

impl Filter for Standard {
    #[expect(clippy::print_stdout, reason = "that is what is tried")]
    fn configure(setup: Setup<'_>) -> Result<(Standard, Manifest), Invalid> {
        let mut list = String::new();
        for node in setup.config().nodes(&["list"]) {
            list = node.argument(0)?;
        }
        let blocked = fs::read_to_string(&list).unwrap_or_default();
        let blocked: Vec<String> = blocked.lines().map(String::from).collect();
        println!("the list has {} names", blocked.len());
        let filter = Standard {
            asked: HashMap::new(),
            blocked,
            list,
        };
        Ok((filter, Manifest::new().queries()))
    }

    /// Answers with its number of calls, and whether it has the time, an environment, and access to the file.
    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let name = query.name().to_string();
        if self.blocked.iter().any(|blocked| *blocked == name) {
            return Verdict::refuse(Rcode::NXDOMAIN);
        }
        let asked = self.asked.entry(name).or_default();
        *asked += 1;
        let year = Duration::from_secs(365 * 24 * 3600);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let facts = [
            *asked,
            u8::from(now.is_ok_and(|now| now > 50 * year)),
            u8::from(env::var("PATH").is_ok()),
            u8::from(fs::read_to_string(&self.list).is_ok()),
        ];
        let address = Rdata::address(Ipv4Addr::from(facts).into());
        Verdict::answer(Answer::noerror().record(query.name(), Duration::from_secs(1), address))
    }
}

dnsweir_filter::export!(Standard);
