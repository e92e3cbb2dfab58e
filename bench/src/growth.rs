//! What grows, and how the proxy is set up for each point of each curve.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use crate::peers::REWRITE;
use crate::wire::Question;
use crate::workload::Workload;

/// A quantity that the cost of a query could depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimension {
    /// Its name on the command line and in file names.
    pub name: &'static str,
    /// Its title in the report.
    pub title: &'static str,
}

/// All, in the order of the report.
pub const DIMENSIONS: [Dimension; 6] = [
    Dimension {
        name: "entries",
        title: "Entries in the cache, all asked for in turn",
    },
    Dimension {
        name: "zones",
        title: "Zones; of 10 000 names so many have their own",
    },
    Dimension {
        name: "filters",
        title: "Filters above the cache",
    },
    Dimension {
        name: "rules",
        title: "Rules in one rewrite filter",
    },
    Dimension {
        name: "clients",
        title: "Clients: pairs of address and port",
    },
    Dimension {
        name: "workers",
        title: "Workers",
    },
];

impl FromStr for Dimension {
    type Err = String;

    fn from_str(name: &str) -> Result<Dimension, String> {
        let found = DIMENSIONS.into_iter().find(|dimension| dimension.name == name);
        let known = || DIMENSIONS.map(|dimension| dimension.name).join(", ");
        found.ok_or_else(|| format!("known are {}", known()))
    }
}

impl Dimension {
    /// Returns its curves.
    pub fn lines(self) -> impl Iterator<Item = &'static Line> {
        LINES.iter().filter(move |line| line.dimension == self.name)
    }
}

/// One curve.
pub struct Line {
    /// Its name on the command line and in the raw numbers.
    pub name: &'static str,
    /// [`Dimension::name`].
    dimension: &'static str,
    /// How it differs from the other curves of the dimension.
    pub label: &'static str,
    /// The values to measure at.
    values: &'static [u32],
    /// Whether it is measured with sockets.
    pub from_outside: bool,
    /// Whether it is measured without sockets.
    pub from_inside: bool,
    set_up: fn(u32) -> Point,
}

/// The setup of the proxy, and its workload.
pub struct Point {
    /// The number of `rewrite` filters above the cache.
    filters: u32,
    /// The `config` of each.
    rules: String,
    /// Whether they are called for every query, because their verdicts are not remembered.
    pub called: bool,
    /// The number of zones, including the root.
    zones: u32,
    /// Worker threads.
    pub workers: u32,
    /// The number of processors they may use; the last one available is shared with the client.
    pub cores: usize,
    /// The workload.
    pub workload: Workload,
}

/// What answers queries that miss the cache.
pub enum Source {
    /// A server.
    Upstream(SocketAddr),
    /// A filter below the cache, so that nothing outside the process is needed.
    Filter,
}

/// As many names as the largest number of zones.
const MANY: Workload = Workload::Hot(10_000);

const DECADES: &[u32] = &[1, 10, 100, 1_000, 10_000];

static LINES: &[Line] = &[
    Line {
        name: "entries",
        dimension: "entries",
        label: "",
        values: &[100, 1_000, 10_000, 100_000, 1_000_000],
        from_outside: true,
        from_inside: true,
        set_up: |entries| Point::plain(Workload::Hot(entries)),
    },
    Line {
        name: "zones",
        dimension: "zones",
        label: "",
        values: DECADES,
        from_outside: true,
        from_inside: true,
        set_up: |zones| Point {
            zones,
            ..Point::plain(MANY)
        },
    },
    Line {
        name: "filters-elsewhere",
        dimension: "filters",
        label: "for other names",
        values: FILTERS,
        from_outside: true,
        from_inside: true,
        set_up: |count| Point::with_filters(count, "name \"exact\" \"a.test\" \"b.test\""),
    },
    Line {
        name: "filters-remembered",
        dimension: "filters",
        label: "remembered",
        values: FILTERS,
        from_outside: true,
        from_inside: true,
        set_up: |count| Point::with_filters(count, EVERY_NAME),
    },
    Line {
        name: "filters-called",
        dimension: "filters",
        label: "called",
        values: FILTERS,
        from_outside: true,
        from_inside: true,
        set_up: |count| Point::with_filters(count, EVERY_NAME).called(),
    },
    Line {
        name: "rules-elsewhere",
        dimension: "rules",
        label: "exact, for other names",
        values: DECADES,
        from_outside: true,
        from_inside: true,
        set_up: |count| Point::with_filters(1, &rules("exact", count)),
    },
    Line {
        name: "rules-exact",
        dimension: "rules",
        label: "exact, called",
        values: DECADES,
        from_outside: true,
        from_inside: true,
        set_up: |count| Point::with_filters(1, &format!("{EVERY_NAME}; {}", rules("exact", count))).called(),
    },
    Line {
        name: "rules-substring",
        dimension: "rules",
        label: "substring, called",
        // More take seconds just to fill the cache; these cannot be asked at the rate of the others.
        values: &[1, 10, 100, 1_000],
        from_outside: false,
        from_inside: true,
        set_up: |count| Point::with_filters(1, &rules("substring", count)).called(),
    },
    Line {
        name: "clients",
        dimension: "clients",
        label: "",
        values: DECADES,
        from_outside: true,
        from_inside: false,
        set_up: |clients| Point::plain(Workload::Sources(clients)),
    },
    Line {
        name: "workers",
        dimension: "workers",
        label: "one processor each",
        values: &[1, 2, 4, 8, 16, 32, 64],
        from_outside: true,
        from_inside: true,
        set_up: |workers| Point {
            workers,
            cores: workers as usize,
            ..Point::plain(Workload::Sources(1_000))
        },
    },
    Line {
        name: "workers-together",
        dimension: "workers",
        label: "one processor for all",
        values: &[1, 2, 4, 8],
        from_outside: true,
        from_inside: false,
        set_up: |workers| Point {
            workers,
            ..Point::plain(Workload::Sources(1_000))
        },
    },
];

const FILTERS: &[u32] = &[0, 1, 2, 4, 8, 16];

/// A rule that could match any name, and matches none that is asked for.
const EVERY_NAME: &str = "type \"ANY\" \"HINFO\"";

fn rules(kind: &str, count: u32) -> String {
    let rule = |number| format!("name \"{kind}\" \"r{number}.example.net\" \"s.example.net\"");
    (0..count).map(rule).collect::<Vec<_>>().join("; ")
}

impl Line {
    /// Finds the curve called `name`.
    fn find(name: &str) -> Option<&'static Line> {
        LINES.iter().find(|line| line.name == name)
    }

    /// Finds the point called `CURVE=N`.
    pub fn find_point(name: &str) -> Result<(&'static Line, u32), &'static str> {
        let point = name.split_once('=').and_then(|(line, value)| {
            let value = value.parse().ok()?;
            Line::find(line).map(|line| (line, value))
        });
        point.ok_or("no point of a curve")
    }

    /// Returns the points to measure on a machine with this many processors.
    pub fn points(&self, processors: usize) -> impl Iterator<Item = (u32, Point)> {
        let points = self.values.iter().map(|value| (*value, self.at(*value)));
        points.filter(move |(_, point)| point.cores <= processors)
    }

    /// Returns the setup at `value`.
    pub fn at(&self, value: u32) -> Point {
        (self.set_up)(value)
    }

    /// Returns the name of the point at `value` in the raw numbers.
    pub fn point_name(&self, value: u32) -> String {
        format!("{}={value}", self.name)
    }
}

impl Point {
    fn plain(workload: Workload) -> Point {
        Point {
            filters: 0,
            rules: String::new(),
            called: false,
            zones: 1,
            workers: 1,
            cores: 1,
            workload,
        }
    }

    /// This many filters, all the same.
    fn with_filters(count: u32, rules: &str) -> Point {
        Point {
            filters: count,
            rules: rules.to_owned(),
            ..Point::plain(Workload::HOT)
        }
    }

    fn called(self) -> Point {
        Point { called: true, ..self }
    }

    /// Returns the configuration; `called` is the folder of modules whose verdicts are not remembered.
    ///
    /// # Errors
    ///
    /// If it needs those, and there is no such folder.
    pub fn config(
        &self,
        listen: SocketAddr,
        source: &Source,
        called: Option<&Path>,
    ) -> Result<String, &'static str> {
        let (filter, below) = match source {
            Source::Upstream(address) => (String::new(), format!("forward \"{address}\"")),
            Source::Filter => (
                "filter \"source\" { module \"builtin:hosts\"; limits time=\"1s\"\n\
                 config { host \"*.bench.example.net\" \"192.0.2.1\" } }\n"
                    .to_owned(),
                "use \"source\"".to_owned(),
            ),
        };
        let module = match self.called {
            true => {
                let folder = called.ok_or("this curve needs --called-modules")?;
                folder.join("rewrite.wasm").display().to_string()
            }
            false => REWRITE.to_owned(),
        };
        let mut text = format!(
            "listen \"{listen}\"\nworkers {}\ncache-memory \"1GiB\"\n{filter}",
            self.workers,
        );
        let mut stages = String::new();
        for number in 0..self.filters {
            // A time limit beyond any measurement.
            let _ = writeln!(
                text,
                "filter \"f{number}\" {{ module \"{module}\"; limits time=\"1s\"; config {{ {} }} }}",
                self.rules,
            );
            let _ = write!(stages, "use \"f{number}\"; ");
        }
        let mut zone = |name: &str| {
            let _ = writeln!(text, "zone \"{name}\" {{ {stages}cache; {below} }}");
        };
        zone(".");
        for number in 1..self.zones {
            zone(&format!("h{:010}.bench.example.net", number - 1));
        }
        Ok(text)
    }

    /// The workload's queries, each name once.
    pub fn queries(&self) -> Vec<Vec<u8>> {
        let (count, mut next) = self.workload.warm_up();
        let message = |question: Question| {
            let mut buffer = [0; 64];
            let length = question.write(1, &mut buffer);
            buffer[..length].to_vec()
        };
        (0..count).map(|_| message(next())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dnsweir_engine::filter::BUILTINS;

    #[test]
    fn every_point_can_be_set_up() {
        let called = tempfile::tempdir().unwrap();
        std::fs::write(called.path().join("rewrite.wasm"), "").unwrap();
        for line in DIMENSIONS.iter().flat_map(|dimension| dimension.lines()) {
            assert!(std::ptr::eq(Line::find(line.name).unwrap(), line));
            for (value, point) in line.points(4) {
                for source in [Source::Filter, Source::Upstream("127.0.0.77:53".parse().unwrap())] {
                    let listen = "127.0.0.1:53".parse().unwrap();
                    let text = point.config(listen, &source, Some(called.path())).unwrap();
                    let config = dnsweir_config::parse("a point", &text, Path::new("/"), BUILTINS);
                    let name = line.point_name(value);
                    let config = config.unwrap_or_else(|report| panic!("{name}: {report}"));
                    assert_eq!(config.zones.len(), point.zones as usize, "{name}");
                }
            }
        }
    }
}
