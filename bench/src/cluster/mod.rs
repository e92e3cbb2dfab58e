//! What it costs to follow a Kubernetes cluster, in comparison with CoreDNS: the same objects from the same
//! stand-in for an API server, one server after the other, each measured from its start.

mod api_server;
mod asking;
mod changes;
mod follower;
mod objects;
mod protobuf;
mod table;

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::accounting::{Memory, Processor};
use crate::options::{Cores, Pace, Proxy, absolute, seconds};
use crate::peers::in_path;
use crate::process::{Scratch, Server, pin};
use crate::record::{Entry, Environment, Record};
use api_server::ApiServer;
use asking::Client;
use changes::Changes;
use follower::{Follower, Programs};
pub use table::{draw, markdown};

/// The file of raw numbers, in the folder of results.
pub const RAW: &str = "cluster.jsonl";

/// How long a server may take to learn everything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for it to settle after the lists.
const REST: Duration = Duration::from_secs(3);

/// What to run.
#[derive(Args)]
pub struct Settings {
    /// Services, each with ten endpoints
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "100,1000,10000"
    )]
    services: Vec<u32>,
    /// Changes of endpoints each second
    #[arg(long, value_name = "N", default_value_t = 1000)]
    changes: u32,
    /// Changes whose answers are waited for, in each measurement
    #[arg(long, value_name = "N", default_value_t = 100)]
    awaited: u32,
    /// Queries per second
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    rate: u32,
    /// How many times everything is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// How long processor time is counted, each time
    #[arg(id = "seconds", long = "seconds", value_name = "S", default_value = "5", value_parser = seconds)]
    duration: Duration,
    #[command(flatten)]
    cores: Cores,
    #[command(flatten)]
    proxy: Proxy,
    /// The program of CoreDNS, if it is not in PATH
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    coredns: Option<PathBuf>,
    /// For cluster.jsonl, cluster.md and cluster.svg
    #[arg(long, value_name = "FOLDER", default_value = crate::output::FOLDER)]
    pub out: PathBuf,
}

/// Runs all measurements.
///
/// # Errors
///
/// If something cannot be started or written.
pub fn run(settings: &Settings) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(&settings.out)?;
    let coredns = settings.coredns.clone().or_else(|| in_path("coredns"));
    let programs = Programs {
        dnsweir: settings.proxy.dnsweir.clone(),
        coredns: coredns.ok_or("there is no coredns: see bench/README.md")?,
    };
    in_path("dnsperf").ok_or("there is no dnsperf")?;
    let mut record = Record::create(&settings.out.join(RAW))?;
    let mut environment = Environment::of(&Pace {
        rounds: settings.rounds,
        duration: settings.duration,
        burst: 1,
        cores: settings.cores,
    });
    environment.versions = programs.versions();
    record.write(&Entry::Environment(environment))?;
    pin(settings.cores.client)?;
    let scratch = Scratch::new()?;
    for &services in &settings.services {
        let server = ApiServer::start(services)?;
        let names = scratch.0.join("names");
        fs::write(&names, all_names(services))?;
        let mut changes = Changes::of(server.clone(), services);
        for round in 0..settings.rounds {
            for place in 0..Follower::ALL.len() {
                let follower = Follower::ALL[(place + round as usize) % Follower::ALL.len()];
                let of = follower.point(services);
                let command = follower.set_up(&programs, &scratch.folder(&of)?, &server.kubeconfig())?;
                let mut point = Point {
                    settings,
                    services,
                    of: &of,
                    names: &names,
                    record: &mut record,
                };
                point.measure(command, &server, &mut changes)?;
            }
        }
    }
    Ok(())
}

/// Returns the question for each service, in mixed order, in dnsperf's format.
fn all_names(services: u32) -> String {
    // Steps of a large prime reach every service.
    let order = (0..u64::from(services)).map(|step| (step * 1_000_003 % u64::from(services)) as u32);
    order
        .map(|service| format!("{} A\n", objects::host(service)))
        .collect()
}

/// One server at one size of the cluster.
struct Point<'a> {
    settings: &'a Settings,
    services: u32,
    of: &'a str,
    names: &'a Path,
    record: &'a mut Record,
}

impl Point<'_> {
    fn measure(
        &mut self,
        mut set_up: follower::SetUp,
        api: &ApiServer,
        changes: &mut Changes,
    ) -> io::Result<()> {
        let begin = Instant::now();
        let server = set_up.start(self.settings.cores.server)?;
        let outcome = self.measure_running(&server, begin, api, changes);
        drop(server);
        api.hang_up();
        outcome.map_err(|error| io::Error::other(format!("{}: {error}\n{}", self.of, set_up.last_words())))
    }

    fn measure_running(
        &mut self,
        server: &Server,
        begin: Instant,
        api: &ApiServer,
        changes: &mut Changes,
    ) -> io::Result<()> {
        let mut client = Client::of(server.address)?;
        // The last endpoint of the last service, which never changes.
        let last = self.services - 1;
        let address = objects::endpoint_address(last, objects::ENDPOINTS - 1);
        let start = client.until(&objects::host(last), address, begin, PATIENCE)?;
        self.note(table::START_MS, start.as_secs_f64() * 1e3)?;
        self.note(table::START_CPU_MS, spent(server)? * 1e3)?;
        while api.watched() < 3 {
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::other("it does not watch everything"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(REST);
        self.note(table::RESIDENT_MIB, resident(server)?)?;
        self.ask(server)?;
        self.await_changes(&mut client, changes, [table::CHANGE_MS, table::WORST_CHANGE_MS])?;
        let running = changes.run(self.settings.changes);
        thread::sleep(Duration::from_secs(1));
        let (before, made) = (spent(server)?, running.made());
        thread::sleep(self.settings.duration);
        let (used, made) = (spent(server)? - before, running.made() - made);
        self.note(table::CHANGE_US, used * 1e6 / made.max(1) as f64)?;
        self.note(table::CHANGES, made as f64 / self.settings.duration.as_secs_f64())?;
        self.await_changes(
            &mut client,
            changes,
            [table::BUSY_CHANGE_MS, table::WORST_BUSY_CHANGE_MS],
        )?;
        running.stop();
        self.note(table::RESIDENT_AFTER_MIB, resident(server)?)?;
        if api.lists() > 1 {
            let text = format!("{}: something was listed {} times", self.of, api.lists());
            self.record.note(&text)?;
        }
        Ok(())
    }

    fn note(&mut self, what: &str, value: f64) -> io::Result<()> {
        eprintln!("{} {what}: {value:.2}", self.of);
        self.record.figure(self.of, what, value)
    }

    /// Measures the CPU time per query.
    fn ask(&mut self, server: &Server) -> io::Result<()> {
        let seconds = self.settings.duration.as_secs().max(1).to_string();
        let before = spent(server)?;
        let asked = Command::new("dnsperf")
            .args([
                "-s",
                &server.address.ip().to_string(),
                "-p",
                &server.address.port().to_string(),
            ])
            .args(["-l", &seconds, "-Q", &self.settings.rate.to_string(), "-d"])
            .arg(self.names)
            .output()?;
        let used = spent(server)? - before;
        let said = String::from_utf8_lossy(&asked.stdout);
        let found = |what: &str| said.lines().find_map(|line| line.trim().strip_prefix(what));
        let answered =
            found("Queries completed:").and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        let answered = answered.ok_or_else(|| io::Error::other(format!("dnsperf said {said}")))?;
        if !found("Response codes:")
            .is_some_and(|codes| codes.contains("NOERROR") && codes.contains("(100.00%)"))
        {
            self.record
                .note(&format!("{}: not all answers were right:\n{said}", self.of))?;
        }
        self.note(table::QUERY_US, used * 1e6 / answered.max(1.0))
    }

    /// Measures the time from a change to the answer that has it: median and maximum.
    fn await_changes(
        &mut self,
        client: &mut Client,
        changes: &mut Changes,
        [middle, worst]: [&str; 2],
    ) -> io::Result<()> {
        let mut times = Vec::new();
        for number in 0..self.settings.awaited {
            let (service, address) = changes.awaited(number);
            let begin = Instant::now();
            changes.make(service, address);
            let time = client.until(&objects::host(service), address, begin, PATIENCE)?;
            times.push(time.as_secs_f64() * 1e3);
            thread::sleep(Duration::from_millis(20));
        }
        let most = times.iter().copied().fold(0.0, f64::max);
        self.note(middle, crate::sample::median(times).unwrap_or(f64::NAN))?;
        self.note(worst, most)
    }
}

/// Returns the CPU seconds of a server.
fn spent(server: &Server) -> io::Result<f64> {
    Ok(Processor::of(server.id())?.scheduled as f64 / 1e9)
}

fn resident(server: &Server) -> io::Result<f64> {
    Ok(Memory::of(server.id())?.resident as f64 / 1024.0)
}
