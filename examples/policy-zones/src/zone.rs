//! One policy zone, read from a zone file.

use dnsweir_filter::{
    Invalid, MasterFile, Name, NameBuf, NameMap, Node, Prefix, PrefixMap, Query, Record, Type,
};

/// What happens to a query or an answer.
#[derive(Debug, Clone, Default)]
pub enum Action {
    Pass,
    Drop,
    TcpOnly,
    Nxdomain,
    #[default]
    Nodata,
    Alias(NameBuf),
    Data(Vec<Record>),
}

/// The policies of a zone, by trigger.
#[derive(Debug, Default)]
pub struct Zone {
    pub name: String,
    names: NameMap<Action>,
    pub clients: PrefixMap<Action>,
    /// By address in the answer.
    pub answers: PrefixMap<Action>,
}

impl Zone {
    /// Reads a zone from a node with its name and its text.
    pub fn read(node: Node<'_>) -> Result<Zone, Invalid> {
        let (origin, text) = (node.argument::<NameBuf>(0)?, node.text(1)?);
        let name = origin.to_string();
        let mut zone = Zone {
            name,
            ..Zone::default()
        };
        for record in MasterFile::new(text, &origin) {
            let record = record.map_err(|error| node.mistake(error.to_string()).argument(1).report())?;
            zone.add(record, &origin);
        }
        Ok(zone)
    }

    /// Adds a policy. Skips the zone's own data, and policies for name servers, which this filter does not
    /// support, because it asks none.
    fn add(&mut self, record: Record, origin: &NameBuf) {
        let owner = NameBuf::from(record.name());
        // Names outside the zone match no trigger.
        let labels = owner.as_name().strip_suffix(origin).into_iter();
        let labels: Vec<&[u8]> = labels.flatten().collect();
        let action = action(record);
        match &labels[..] {
            [] | [.., b"rpz-nsdname" | b"rpz-nsip"] => {}
            [of @ .., b"rpz-client-ip"] => self.clients.extend(Prefix::from_labels(of).zip(Some(action))),
            [of @ .., b"rpz-ip"] => self.answers.extend(Prefix::from_labels(of).zip(Some(action))),
            labels => {
                let name = NameBuf::join(labels.iter().copied(), Name::ROOT).unwrap_or(NameBuf::root());
                match (self.names.entry(name), action) {
                    // Several data records of an owner form one answer.
                    (Action::Data(known), Action::Data(data)) => known.extend(data),
                    (known, action) => *known = action,
                }
            }
        }
    }

    /// The policy for the client, or else for the name or the names above it.
    pub fn action_for(&self, query: &Query<'_>) -> Option<&Action> {
        let of_client = self.clients.get(query.client());
        of_client.or_else(|| self.names.matching(query.name()))
    }
}

fn action(record: Record) -> Action {
    let target = record.target().filter(|_| record.rtype() == Type::CNAME);
    let Some(target) = target else {
        return Action::Data(vec![record]);
    };
    match target.to_string().as_str() {
        "." => Action::Nxdomain,
        "*." => Action::Nodata,
        "rpz-passthru." => Action::Pass,
        "rpz-drop." => Action::Drop,
        "rpz-tcp-only." => Action::TcpOnly,
        _ => Action::Alias(target),
    }
}
