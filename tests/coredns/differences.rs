//! What dnsweir does differently from CoreDNS, and why.

use super::{Asked, Difference, Manner, Said};

/// Differences with any Corefile.
pub const EVERYWHERE: [Difference; 7] = [
    Difference {
        settle: recursion_available,
        why: "dnsweir always sets RA, which does not depend on the answer (RFC 1035 section 4.1.1)",
    },
    Difference {
        settle: truncated,
        why: "Truncated replies have different records, because clients ask again over TCP",
    },
    Difference {
        settle: opt_unasked,
        why: "CoreDNS sends an OPT record to clients that sent none, against RFC 6891 section 7",
    },
    Difference {
        settle: extended_errors,
        why: "dnsweir adds extended errors (RFC 8914)",
    },
    Difference {
        settle: denial,
        why: "The TTL of a denial's SOA record is at most its MINIMUM (RFC 2308 section 5)",
    },
    Difference {
        settle: lowest_ttl,
        why: "CoreDNS's cache gives all records of a message their lowest TTL; in dnsweir, each set keeps its own",
    },
    Difference {
        settle: cached_authority,
        why: "Answers from the cache are not authoritative (RFC 1034 section 6.2.1)",
    },
];

fn recursion_available(_: &Asked, theirs: &mut Said, ours: &mut Said) {
    for said in [theirs, ours] {
        said.flags.retain(|flag| *flag != "RA");
    }
}

fn truncated(_: &Asked, theirs: &mut Said, ours: &mut Said) {
    if theirs.flags.contains(&"TC") && ours.flags.contains(&"TC") {
        for said in [theirs, ours] {
            said.answers.clear();
            said.authority.clear();
            said.additional.clear();
        }
    }
}

fn opt_unasked(asked: &Asked, theirs: &mut Said, _: &mut Said) {
    if matches!(asked.manner, Manner::Plain | Manner::Again | Manner::Tcp) {
        theirs.edns = false;
        theirs.errors.clear();
    }
}

fn extended_errors(_: &Asked, theirs: &mut Said, ours: &mut Said) {
    if theirs.errors.is_empty() {
        ours.errors.clear();
    }
}

fn denial(_: &Asked, theirs: &mut Said, ours: &mut Said) {
    for said in [theirs, ours] {
        for (record, ttl) in said
            .authority
            .iter_mut()
            .filter(|(record, _)| record.contains(" soa "))
        {
            let minimum = record.rsplit(' ').next().and_then(|minimum| minimum.parse().ok());
            *ttl = minimum.map_or(*ttl, |minimum: u32| minimum.min(*ttl));
        }
    }
}

fn lowest_ttl(_: &Asked, theirs: &mut Said, ours: &mut Said) {
    for said in [theirs, ours] {
        let sections = [&said.answers, &said.authority, &said.additional];
        let lowest = sections.into_iter().flatten().map(|(_, ttl)| *ttl).min();
        let sections = [&mut said.answers, &mut said.authority, &mut said.additional];
        for (_, ttl) in sections.into_iter().flatten() {
            *ttl = lowest.unwrap_or(*ttl);
        }
    }
}

fn cached_authority(_: &Asked, theirs: &mut Said, ours: &mut Said) {
    if !ours.flags.contains(&"AA") {
        theirs.flags.retain(|flag| *flag != "AA");
    }
}
