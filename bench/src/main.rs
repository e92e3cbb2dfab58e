//! Measures dnsweir beside the peers that are installed. `bench/README.md` tells how, and what the
//! figures mean.

mod accounting;
mod answering;
mod args;
mod ask;
mod bars;
mod curves;
mod datagrams;
mod dnsperf;
mod drive;
mod growth;
mod histogram;
mod hit;
mod hostile;
mod loss;
mod measure;
mod peers;
mod pending;
mod picture;
mod process;
mod report;
mod rotation;
mod run;
mod sample;
mod scale;
mod tcp_client;
mod udp_client;
mod wire;
mod workload;
mod worst;

use std::error::Error;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use answering::{Answers, Wait};
use args::Args;
use ask::Place;
use growth::{DIMENSIONS, Dimension, Line};
use hit::Filters;
use peers::{PEERS, Peer};
use report::Run;
use run::Settings;
use sample::Load;
use wire::{A, NXDOMAIN, Tail};
use workload::Workload;
use worst::Filling;

const USAGE: &str = "\
dnsweir-bench run        measure, then report
    --out FOLDER             for raw.jsonl, report.md, picture.svg  [target/bench]
    --dnsweir FILE           the proxy                              [target/release/dnsweir]
    --peers A,B              of: floor dnsweir dnsweir+3 dnsweir+3-called unbound dnsdist pdns-recursor
                             knot-resolver dnsmasq coredns node-cache dnsweir+3-lines unbound-lines
                             dnsdist-lines coredns-lines            [all that are installed]
    --workloads A,B          of: hot zipf misses nxdomain pairs tcp sources [all]; hot-N, sources-N
    --loads A,B              queries per second, and `saturation`   [by workload]
    --rates all|highest      of those by workload                   [all]
    --rounds N               [5]
    --seconds S              of each measurement                    [4]
    --burst N                queries sent at once at a fixed rate    [16]
    --limit S                begin nothing after this many seconds  [7200]
    --server-core N          [0]
    --client-core N          [1]
    --coredns FILE           where it is, if not in PATH
    --node-cache FILE        where it is, if not in PATH
    --called-modules FOLDER  what bench/called-filters.sh made, for dnsweir+3-called
dnsweir-bench scale      how the cost of a query grows
    --only A,B               with: entries zones filters rules clients workers [all]
    --out FOLDER             for scale-*.jsonl, scale.md, scale.svg [target/bench]
    --dnsweir FILE [target/release/dnsweir]   --rate N [60000]   --burst N [16]   --rounds N [5]   --seconds S [1]
    --server-core N [0]   --client-core N [1]
dnsweir-bench report     make reports and pictures again
    --out FOLDER             with raw.jsonl or scale-*.jsonl        [target/bench]
dnsweir-bench dnsperf    ask the floor with this client and with dnsperf, and compare
    --rounds N [3]  --seconds S [3]  --rate N [60000]  --burst N [16]  --server-core N [0]  --client-core N [1]
dnsweir-bench hit        a hit without sockets, in this process
    --filters bare|remembered|called  [all that can be]   --count N [1000000]   --batch N [32]
    --called-modules FOLDER  what bench/called-filters.sh made
    --at CURVE=N             not that, but a point of a curve of `scale`, such as zones=1000
dnsweir-bench worst      the dearest messages there are, in this process
    --query|--answer pointers|compressed|labels|records|options   what it is full of
    --octets N [512]         --count N [1]
dnsweir-bench hostile    what hostile filters cost the zones that do not use them
    --guests FOLDER          with their modules                     [target/hostile/wasm32-unknown-unknown/release]
    --only TEXT              those whose description holds it       [all]
    --dnsweir FILE [target/release/dnsweir]   --rounds N [5]   --seconds S [4]   --flood N [1000000]
    --server-core N [0]   --client-core N [1]
dnsweir-bench ask        measure servers that run already, wherever that is
    --servers A,B            each as NAME@IP:PORT@PID+PID, with the processes that work for it
    --workload NAME [hot]   --loads A,B [60000,saturation]   --rounds N [5]   --seconds S [2]   --burst N [16]
    --server-core N [0]   --client-core N [1]
dnsweir-bench loss       misses while upstream datagrams are lost
    --dnsweir FILE [target/release/dnsweir]   --coredns FILE [in PATH]   --one-in N [10]   --rate N [500]
    --seconds S [20]   --server-core N [0]   --client-core N [1]
dnsweir-bench floor      --listen IP:PORT --answer address|nxdomain [--wait epoll]
dnsweir-bench upstream   --listen IP:PORT
";

/// Queries sent at once at a fixed rate, unless told otherwise: a few pods' searches that coincide.
const BURST: usize = 16;

/// Where results go.
const OUT: &str = "target/bench";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let result = match command.as_str() {
        "run" => measure_all(words),
        "scale" => grow(words),
        "report" => Args::read(words, &["out"])
            .map_err(Into::into)
            .and_then(|args| write_reports(&args.path("out").unwrap_or(OUT.into()))),
        "dnsperf" => compare(words),
        "hit" => hits(words),
        "worst" => fear(words),
        "hostile" => torment(words),
        "loss" => lose(words),
        "ask" => ask_others(words),
        "floor" | "upstream" => serve(&command, words),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dnsweir-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let args = Args::read(
        words,
        &[
            "out",
            "dnsweir",
            "peers",
            "workloads",
            "loads",
            "rates",
            "rounds",
            "seconds",
            "burst",
            "limit",
            "server-core",
            "client-core",
            "coredns",
            "node-cache",
            "called-modules",
        ],
    )?;
    // Servers run in a folder of their own.
    let path = |name: &str| args.path(name).map(std::path::absolute).transpose();
    let program = |name| Ok::<_, std::io::Error>(path(name)?.map(|path| (name, path)));
    let default = std::path::absolute("target/release/dnsweir")?;
    let settings = Settings {
        peers: args
            .list("peers", Peer::find)?
            .unwrap_or_else(|| PEERS.iter().collect()),
        workloads: args
            .list("workloads", Workload::find)?
            .unwrap_or_else(|| Workload::ALL.to_vec()),
        loads: args.list("loads", Load::parse)?,
        highest: match args.text("rates") {
            None | Some("all") => false,
            Some("highest") => true,
            Some(other) => return Err(format!("--rates {other}: not all or highest").into()),
        },
        rounds: args.value("rounds", 5)?,
        duration: seconds(&args, "seconds", 4.0)?,
        burst: args.value("burst", BURST)?,
        limit: seconds(&args, "limit", 7200.0)?,
        server_core: args.value("server-core", 0)?,
        client_core: args.value("client-core", 1)?,
        dnsweir: path("dnsweir")?.unwrap_or(default),
        programs: [program("coredns")?, program("node-cache")?]
            .into_iter()
            .flatten()
            .collect(),
        called: path("called-modules")?,
        out: args.path("out").unwrap_or(OUT.into()),
    };
    run::run(&settings)?;
    write_report(&settings.out)
}

/// Seconds above 0 and below a day.
fn seconds(args: &Args, name: &str, default: f64) -> Result<Duration, Box<dyn Error>> {
    let seconds: f64 = args.value(name, default)?;
    if !(0.1..86_400.0).contains(&seconds) {
        return Err(format!("--{name} {seconds}: not between 0.1 and 86400").into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn write_reports(out: &Path) -> Result<(), Box<dyn Error>> {
    let scaled = DIMENSIONS
        .into_iter()
        .any(|dimension| scale::raw(out, dimension).is_file());
    if scaled {
        write_curves(out)?;
    }
    // Without either the missing file is the mistake to name.
    if !scaled || out.join("raw.jsonl").is_file() {
        write_report(out)?;
    }
    Ok(())
}

fn write_report(out: &Path) -> Result<(), Box<dyn Error>> {
    let run = Run::read(&out.join("raw.jsonl"))?;
    let markdown = run.markdown();
    std::fs::write(out.join("report.md"), &markdown)?;
    print!("{markdown}");
    let picture = run.workloads();
    let picture = picture.iter().find_map(|workload| bars::draw(&run, *workload));
    picture.map_or(Ok(()), |svg| write_picture(&out.join("picture.svg"), &svg))
}

/// The report and the picture of all dimensions that there are numbers of.
fn write_curves(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut runs = Vec::new();
    for dimension in DIMENSIONS {
        let raw = scale::raw(out, dimension);
        if raw.is_file() {
            runs.push((dimension, Run::read(&raw)?));
        }
    }
    let markdown = curves::markdown(&runs);
    std::fs::write(out.join("scale.md"), &markdown)?;
    print!("{markdown}");
    write_picture(&out.join("scale.svg"), &curves::draw(&runs))
}

/// As SVG, and as PNG where something here can draw one.
fn write_picture(path: &Path, svg: &str) -> Result<(), Box<dyn Error>> {
    std::fs::write(path, svg)?;
    if let Some(program) = peers::in_path("rsvg-convert") {
        let mut command = Command::new(program);
        command.args(["--zoom=2", "-o"]).arg(path.with_extension("png"));
        command.arg(path).status()?;
    }
    Ok(())
}

fn grow(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let known = [
        "only",
        "out",
        "dnsweir",
        "rate",
        "burst",
        "rounds",
        "seconds",
        "server-core",
        "client-core",
    ];
    let args = Args::read(words, &known)?;
    let dnsweir = args.path("dnsweir").unwrap_or("target/release/dnsweir".into());
    let settings = scale::Settings {
        dnsweir: std::path::absolute(dnsweir)?,
        dimensions: args
            .list("only", Dimension::find)?
            .unwrap_or_else(|| DIMENSIONS.to_vec()),
        rate: args.value("rate", 60_000)?,
        burst: args.value("burst", BURST)?,
        rounds: args.value("rounds", 5)?,
        duration: seconds(&args, "seconds", 1.0)?,
        server_core: args.value("server-core", 0)?,
        client_core: args.value("client-core", 1)?,
        out: args.path("out").unwrap_or(OUT.into()),
    };
    scale::run(&settings)?;
    write_curves(&settings.out)
}

fn compare(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let args = Args::read(
        words,
        &["rounds", "seconds", "rate", "burst", "server-core", "client-core"],
    )?;
    let table = dnsperf::compare(&dnsperf::Settings {
        rounds: args.value("rounds", 3)?,
        duration: seconds(&args, "seconds", 3.0)?,
        rate: args.value("rate", 60_000)?,
        burst: args.value("burst", BURST)?,
        server_core: args.value("server-core", 0)?,
        client_core: args.value("client-core", 1)?,
    })?;
    print!("{table}");
    Ok(())
}

fn torment(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let known = [
        "guests",
        "only",
        "dnsweir",
        "rounds",
        "seconds",
        "flood",
        "server-core",
        "client-core",
    ];
    let args = Args::read(words, &known)?;
    let path = |name, default: &str| {
        let given = args.path(name).unwrap_or_else(|| default.into());
        std::path::absolute(given)
    };
    let table = hostile::run(&hostile::Settings {
        dnsweir: path("dnsweir", "target/release/dnsweir")?,
        guests: path("guests", "target/hostile/wasm32-unknown-unknown/release")?,
        only: args.text("only").map(str::to_owned),
        rounds: args.value("rounds", 5)?,
        duration: seconds(&args, "seconds", 4.0)?,
        flood: args.value("flood", 1_000_000)?,
        server_core: args.value("server-core", 0)?,
        client_core: args.value("client-core", 1)?,
    })?;
    print!("{table}");
    Ok(())
}

fn ask_others(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let known = [
        "servers",
        "workload",
        "loads",
        "rounds",
        "seconds",
        "burst",
        "server-core",
        "client-core",
    ];
    let args = Args::read(words, &known)?;
    let workload = args.text("workload").unwrap_or("hot");
    let table = ask::run(&ask::Settings {
        places: args
            .list("servers", Place::parse)?
            .ok_or("--servers is missing")?,
        workload: Workload::find(workload).ok_or_else(|| format!("--workload {workload}: not known"))?,
        loads: args
            .list("loads", Load::parse)?
            .unwrap_or_else(|| vec![Load::Rate(60_000), Load::Saturation]),
        rounds: args.value("rounds", 5)?,
        duration: seconds(&args, "seconds", 2.0)?,
        burst: args.value("burst", BURST)?,
        server_core: args.value("server-core", 0)?,
        client_core: args.value("client-core", 1)?,
    })?;
    print!("{table}");
    Ok(())
}

fn lose(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let known = [
        "dnsweir",
        "coredns",
        "one-in",
        "rate",
        "seconds",
        "server-core",
        "client-core",
    ];
    let args = Args::read(words, &known)?;
    let path = |name: &str| args.path(name).map(std::path::absolute).transpose();
    let default = std::path::absolute("target/release/dnsweir")?;
    let table = loss::run(&loss::Settings {
        dnsweir: path("dnsweir")?.unwrap_or(default),
        coredns: path("coredns")?,
        one_in: args.value("one-in", 10)?,
        rate: args.value("rate", 500)?,
        duration: seconds(&args, "seconds", 20.0)?,
        server_core: args.value("server-core", 0)?,
        client_core: args.value("client-core", 1)?,
    })?;
    print!("{table}");
    Ok(())
}

fn fear(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let args = Args::read(words, &["query", "answer", "octets", "count"])?;
    let (octets, count) = (args.value("octets", 512)?, args.value("count", 1)?);
    let filling = |name: &str| Filling::find(name).ok_or_else(|| format!("{name} is nothing to be full of"));
    let met = match (args.text("query"), args.text("answer")) {
        (Some(name), None) => worst::query(filling(name)?, octets, count)?,
        (None, Some(name)) => worst::answer(filling(name)?, octets, count),
        _ => return Err("write --query or --answer".into()),
    };
    println!("{met}");
    Ok(())
}

fn hits(words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let args = Args::read(words, &["filters", "at", "count", "batch", "called-modules"])?;
    let plan = hit::Plan {
        count: args.value("count", 1_000_000)?,
        limit: Duration::MAX,
        batch: args.value("batch", 32)?,
        rounds: 1,
    };
    let mut setups = Vec::new();
    if let Some(name) = args.text("at") {
        let point = name.split_once('=').and_then(|(line, value)| {
            let value = value.parse().ok()?;
            Line::find(line).map(|line| line.at(value))
        });
        let point = point.ok_or_else(|| format!("--at {name}: no point of a curve"))?;
        setups.push((name, hit::Setup::at(&point, Vec::new(), None)?));
    } else {
        let called = args.path("called-modules").map(std::path::absolute).transpose()?;
        let mut ways = vec![("bare", Filters::Bare), ("remembered", Filters::Remembered)];
        ways.extend(called.map(|folder| ("called", Filters::Called(folder))));
        if let Some(chosen) = args.text("filters") {
            ways.retain(|(name, _)| *name == chosen);
        }
        setups.extend(ways.iter().map(|(name, way)| (*name, hit::Setup::with(way))));
    }
    if setups.is_empty() {
        return Err("--filters: bare, remembered, or called with --called-modules".into());
    }
    for (name, setup) in setups {
        let hits = hit::measure(&setup, plan)?;
        println!("{name}: {} hits, {:.0} ns each", plan.count, hits.each);
    }
    Ok(())
}

fn serve(command: &str, words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let args = Args::read(words, &["listen", "answer", "wait"])?;
    let address: SocketAddrV4 = args.text("listen").ok_or("--listen is missing")?.parse()?;
    let answers = match (command, args.text("answer")) {
        ("floor", None | Some("address")) => Answers::Fixed(Tail::address(A, 0x0a00_0001).into()),
        ("floor", Some("nxdomain")) => Answers::Fixed(Tail::denial(NXDOMAIN, &[]).into()),
        ("floor", Some(other)) => return Err(format!("--answer {other}: not address or nxdomain").into()),
        _ => Answers::Authoritative,
    };
    let wait = match args.text("wait") {
        None => Wait::Receive,
        Some("epoll") => Wait::Epoll,
        Some(other) => return Err(format!("--wait {other}: not epoll").into()),
    };
    answering::serve(address, answers, wait)?;
    Ok(())
}
