//! Measures what each action of a filter costs: a hit with a filter that does it, from the bytes of the query
//! to those of the reply, minus a hit without a filter. In one process, without sockets, as
//! [`hit`](crate::hit) measures.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::hit::{Expected, OTHER, Plan, Setup, measure};
use crate::options::absolute;
use crate::process::Scratch;

/// Lines of the list that is searched.
const LINES: u32 = 100_000;

/// Queries in a batch: a node with little load, and one with much.
const BATCHES: [usize; 2] = [1, 32];

/// What to measure, on the command line.
#[derive(Args)]
pub struct Settings {
    /// The filter `tests/filters/verbs`, compiled
    #[arg(
        long,
        value_name = "FILE",
        default_value = "target/hostile/wasm32-unknown-unknown/release/verbs.wasm",
        value_parser = absolute
    )]
    module: PathBuf,
    /// The same, compiled for WASI; without it, nothing is measured of that
    #[arg(
        long,
        value_name = "FILE",
        default_value = "target/hostile/wasm32-wasip2/release/verbs.wasm",
        value_parser = absolute
    )]
    wasi_module: PathBuf,
    /// Only what the description of holds this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Measurements of each, of which the quickest counts
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// Queries of each
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    count: u64,
}

/// An action of the filter.
struct Verb {
    what: &'static str,
    /// Its name in the filter's configuration.
    word: &'static str,
    expected: Expected,
    /// For a filter built for WASI: its grants.
    wasi: Option<&'static str>,
}

const fn verb(what: &'static str, word: &'static str) -> Verb {
    replying(what, word, Expected::ONE_RECORD)
}

const fn replying(what: &'static str, word: &'static str, expected: Expected) -> Verb {
    Verb {
        what,
        word,
        expected,
        wasi: None,
    }
}

const fn granted(what: &'static str, word: &'static str, wasi: &'static str) -> Verb {
    Verb {
        wasi: Some(wasi),
        ..verb(what, word)
    }
}

const DENIED: Expected = Expected {
    rcode: 3,
    answers: 0,
    ..Expected::ONE_RECORD
};
const WITH_ALIAS: Expected = Expected {
    answers: 2,
    ..DEFERRED
};
const DEFERRED: Expected = Expected {
    deferred: true,
    ..Expected::ONE_RECORD
};
const MAPPED: Expected = Expected {
    rcode: 5,
    ..Expected::ONE_RECORD
};
const DROPPED: Expected = Expected {
    silent: true,
    ..Expected::ONE_RECORD
};

const VERBS: [Verb; 52] = [
    verb("sees each query, and passes", "pass"),
    verb("the same, remembered", "remember"),
    replying("refuses", "refuse", DENIED),
    replying("refuses, with an extended error", "refuse-error", DENIED),
    replying("drops it, for a reason", "drop", DROPPED),
    verb("answers with an address", "answer"),
    replying("alias to another name", "alias", WITH_ALIAS),
    verb("rewrites the name", "rewrite"),
    verb("sends the client's subnet on", "client-subnet"),
    verb("sends it to another source", "via"),
    verb("leaves its response phase out", "skip-response"),
    verb("bounds the TTL of the response", "query-edit"),
    replying("asks for one cached name", "ask", DEFERRED),
    verb("reads the listener's name", "listener"),
    verb("reads the server's name of TLS", "server-name"),
    verb("reads who asks", "identity"),
    verb("reads the EDNS options", "options"),
    verb("`count`", "count"),
    verb("`count_with` a label", "count-label"),
    verb("`print` of a line", "print"),
    verb("`log` of a line", "log"),
    verb("`Table::get`", "get"),
    verb("`Table::add`", "add"),
    verb("`Table::put`", "put"),
    verb("`Table::compare_and_swap`", "compare-and-swap"),
    verb("`Table::take`", "take"),
    verb("`Data::find_line` in 100 000 lines", "find-line"),
    verb("`Data::read_at`", "read-at"),
    verb("sees each response, and passes", "response-pass"),
    verb("the same with the message", "response-message"),
    verb("replaces it", "response-replace"),
    replying("drops it", "response-drop", DROPPED),
    replying("asks for one cached name about it", "response-ask", DEFERRED),
    replying("maps its response code", "response-rcode", MAPPED),
    verb("bounds its TTL", "response-ttl"),
    verb("clears a flag", "response-flags"),
    verb("adds an extended error", "response-error"),
    verb("rotates its records", "response-rotate"),
    verb("shuffles its records", "response-shuffle"),
    verb("permutes its records", "response-permute"),
    verb("replaces a record", "response-replace-records"),
    verb("removes records by type", "response-remove"),
    verb("appends a record", "response-append"),
    verb("sees each event", "event"),
    verb("the same with the message", "event-message"),
    granted("built for WASI, passes", "pass", ""),
    granted(
        "the same, with all grants",
        "pass",
        "clock; random; env \"PATH\"; folder \"/usr\"",
    ),
    granted("reads the clock, granted", "clock", "clock"),
    granted("reads the clock, not granted", "clock", ""),
    granted("takes a random number, granted", "random", "random"),
    granted("takes a random number, not granted", "random", ""),
    granted("`println!` of a line", "println", ""),
];

/// Measures, and returns a table.
///
/// # Errors
///
/// If a filter cannot be set up, or a reply is not as expected.
pub fn run(settings: &Settings) -> Result<String, Box<dyn Error>> {
    let scratch = Scratch::new()?;
    let mut names: Vec<String> = (0..LINES)
        .map(|number| format!("host-{number}.ads.example"))
        .collect();
    names.sort_unstable();
    fs::write(scratch.0.join("list"), names.join("\n"))?;
    fs::write(scratch.0.join("kubeconfig"), "")?;
    let bare = Setup::behind("", "", Expected::ONE_RECORD);
    let bare = each(settings, &bare)?;
    let mut table = format!(
        "nanoseconds for each query\n{:<38}{:>10}{:>10}\n{:<38}{:>10.0}{:>10.0}\n",
        "", "alone", "of 32", "a hit without a filter", bare[0], bare[1]
    );
    let without_wasi = !settings.wasi_module.is_file();
    if without_wasi {
        eprintln!(
            "there is no {}: see bench/README.md",
            settings.wasi_module.display()
        );
    }
    let chosen = VERBS.iter().filter(|verb| verb.what.contains(&settings.only));
    for verb in chosen.filter(|verb| !(verb.wasi.is_some() && without_wasi)) {
        let setup = with(verb, settings, &scratch.0);
        let took = each(settings, &setup).map_err(|error| format!("{}: {error}", verb.word))?;
        let (alone, batched) = (took[0] - bare[0], took[1] - bare[1]);
        let row = format!("{:<38}{alone:>+10.0}{batched:>+10.0}", verb.what);
        eprintln!("{row}");
        let _ = writeln!(table, "{row}");
    }
    Ok(table)
}

fn with(verb: &Verb, settings: &Settings, folder: &Path) -> Setup {
    let (module, grants) = match verb.wasi {
        Some("") => (&settings.wasi_module, String::new()),
        Some(grants) => (&settings.wasi_module, format!("wasi {{ {grants} }}")),
        None => (&settings.module, String::new()),
    };
    // No API server lists pods here; the client is the node itself.
    let pods = match verb.word {
        "identity" => format!(
            "pods {{ node \"here\"; kubeconfig {:?} }}",
            folder.join("kubeconfig")
        ),
        _ => String::new(),
    };
    let filter = format!(
        "{pods}\nsource \"elsewhere\" {{ forward \"192.0.2.54\" }}\n\
         filter \"verbs\" {{ module \"{}\"; limits time=\"1s\"; {grants}\n\
         config {{ verb \"{}\"; other \"{OTHER}\"; list (data)\"{}\" }} }}",
        module.display(),
        verb.word,
        folder.join("list").display()
    );
    Setup::behind(&filter, "use \"verbs\"", verb.expected)
}

/// Returns the nanoseconds per query, for each batch size.
fn each(settings: &Settings, setup: &Setup) -> Result<[f64; 2], Box<dyn Error>> {
    let mut took = [0.0; 2];
    for (took, batch) in took.iter_mut().zip(BATCHES) {
        let plan = Plan {
            count: settings.count,
            limit: Duration::MAX,
            batch,
            rounds: settings.rounds,
        };
        *took = measure(setup, plan)?.each;
    }
    Ok(took)
}
