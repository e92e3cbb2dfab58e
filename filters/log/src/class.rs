//! Which responses are logged, in CoreDNS's classes.

use dnsweir_filter::{Event, FromValue, Node, Rcode, Value};

/// What became of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// NOERROR with records.
    Success,
    /// The name (NXDOMAIN) or the type (NODATA: NOERROR without records) does not exist.
    Denial,
    /// Any other response code, or no response.
    Error,
}

impl Class {
    fn of(event: &Event<'_>) -> Class {
        if event.dropped() {
            return Class::Error;
        }
        match event.rcode() {
            Rcode::NOERROR if event.has_answers() => Class::Success,
            Rcode::NOERROR | Rcode::NXDOMAIN => Class::Denial,
            _ => Class::Error,
        }
    }
}

/// A set of classes.
#[derive(Clone, Copy)]
pub struct Classes(u8);

impl Classes {
    const ALL: Classes = Classes(!0);

    /// Joins every `class` node of the block; none of them means all classes.
    pub fn read(config: Node<'_>) -> Classes {
        let nodes = config.nodes(&["class"]);
        if nodes.is_empty() {
            return Classes::ALL;
        }
        let written = nodes
            .iter()
            .flat_map(|node| node.arguments(0).unwrap_or_default());
        written.fold(Classes(0), |all, Classes(more)| Classes(all.0 | more))
    }

    /// Whether the event belongs to one of them.
    pub fn contain(self, event: &Event<'_>) -> bool {
        self.0 & 1 << Class::of(event) as u8 != 0
    }
}

impl FromValue for Classes {
    const EXPECTED: &'static str = "a class";

    fn from_value(value: Value<'_>) -> Result<Classes, String> {
        let class = match value {
            Value::Text("all") => return Ok(Classes::ALL),
            Value::Text("success") => Class::Success,
            Value::Text("denial") => Class::Denial,
            Value::Text("error") => Class::Error,
            _ => return Err("\"success\", \"denial\", \"error\" or \"all\"".to_owned()),
        };
        Ok(Classes(1 << class as u8))
    }
}
