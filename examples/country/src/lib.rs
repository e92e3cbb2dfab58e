//! Directs clients to names for their country or continent, by means of an address database.

use std::net::IpAddr;

use dnsweir_filter::{
    Filter, FromValue, Invalid, Manifest, Mmdb, NameBuf, NameMap, Node, Query, Setup, Value, Verdict,
};

/// The filter.
pub struct Country {
    database: Mmdb,
    steered: NameMap<Vec<Rule>>,
}

/// Which clients are directed where.
struct Rule {
    /// The path of the code in the database.
    path: [&'static str; 2],
    codes: Vec<Code>,
    target: NameBuf,
}

/// A code of two letters.
struct Code(String);

impl FromValue for Code {
    const EXPECTED: &'static str = "a code";

    fn from_value(value: Value<'_>) -> Result<Code, String> {
        match value {
            Value::Text(text) if text.len() == 2 && text.bytes().all(|octet| octet.is_ascii_uppercase()) => {
                Ok(Code(text.to_owned()))
            }
            _ => Err("two letters, such as \"DE\"".to_owned()),
        }
    }
}

impl Filter for Country {
    fn configure(setup: Setup<'_>) -> Result<(Country, Manifest), Invalid> {
        let config = setup.config();
        let mut steered = NameMap::new();
        for node in config.nodes(&["steer"]) {
            if let Ok(name) = node.argument::<NameBuf>(0) {
                steered.insert(name, rules(node));
            }
        }
        let database = config.setting("database");
        let manifest = Manifest::new()
            .queries()
            .at_or_below(steered.iter().map(|(name, _)| name));
        Ok((
            Country {
                database: database?,
                steered,
            },
            manifest,
        ))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let Some(rules) = self.steered.get(query.name()) else {
            return Verdict::pass();
        };
        let mut rules = rules
            .iter()
            .filter(|rule| rule.holds(&self.database, query.client()));
        rules
            .next()
            .map_or_else(Verdict::pass, |rule| Verdict::alias(rule.target.clone()))
    }
}

impl Rule {
    fn holds(&self, database: &Mmdb, client: IpAddr) -> bool {
        let code = database.text(client, &self.path);
        code.is_some_and(|code| self.codes.iter().any(|known| known.0 == code))
    }
}

/// `country TARGET CODE…` and `continent TARGET CODE…`
fn rules(node: Node<'_>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for rule in node.nodes(&["country", "continent"]) {
        let path = match rule.name() {
            "country" => ["country", "iso_code"],
            _ => ["continent", "code"],
        };
        if let (Ok(target), Ok(codes)) = (rule.argument(0), rule.arguments(1)) {
            rules.push(Rule { path, codes, target });
        }
    }
    rules
}

dnsweir_filter::export!(Country);
