//! Orders the addresses of an answer: at random, or so that a client always gets the same one first.
//!
//! For the latter, each address gets a hash of itself and the client, and the lowest comes first (rendezvous
//! hashing). So neither the upstream's order nor other addresses that come and go change which one that is.

use std::net::IpAddr;

use dnsweir_filter::{
    Filter, FromValue, Invalid, Manifest, NameBuf, NameMap, PrefixLengths, Query, Response, ResponseEdit,
    ResponseVerdict, Setup, Ttl, Type, Value, Verdict, stable_hash,
};

/// The filter.
pub struct Rotation {
    orders: NameMap<Order>,
    lengths: PrefixLengths,
}

/// How a name's addresses are ordered.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Random for each response.
    Random,
    /// Fixed per client.
    Affinity,
    /// Unchanged.
    AsIs,
}

impl FromValue for Order {
    const EXPECTED: &'static str = "an order";

    fn from_value(value: Value<'_>) -> Result<Order, String> {
        match value {
            Value::Text("random") => Ok(Order::Random),
            Value::Text("affinity") => Ok(Order::Affinity),
            Value::Text("as-is") => Ok(Order::AsIs),
            _ => Err("write \"random\", \"affinity\" or \"as-is\"".to_owned()),
        }
    }
}

impl Filter for Rotation {
    fn configure(setup: Setup<'_>) -> Result<(Rotation, Manifest), Invalid> {
        let config = setup.config();
        let lengths = config
            .node("prefix")?
            .map_or(Ok(PrefixLengths::WHOLE), PrefixLengths::read)?;
        let mut orders = NameMap::new();
        let nodes = config.nodes(&["order"]);
        if nodes.is_empty() {
            orders.insert(NameBuf::root(), Order::Random);
        }
        for node in nodes {
            let (order, names) = (node.argument::<Order>(0), node.optional_arguments::<NameBuf>(1));
            let (Ok(order), Ok(names)) = (order, names) else {
                continue;
            };
            let everything = names.is_empty().then(NameBuf::root);
            for name in names.into_iter().chain(everything) {
                orders.insert(name, order);
            }
        }
        let mut manifest = Manifest::new()
            .queries()
            .types([Type::A, Type::AAAA, Type::MX, Type::ANY])
            .at_or_below(orders.iter().map(|(name, _)| name));
        if orders.iter().any(|(_, order)| *order == Order::Affinity) {
            manifest = manifest.responses().messages();
        }
        Ok((Rotation { orders, lengths }, manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let order = self.orders.suffixes(query.name()).next().map(|(_, order)| *order);
        let verdict = match order {
            // The host shuffles each response, even if it remembers the verdict.
            Some(Order::Random) => Verdict::pass()
                .edit(ResponseEdit::new().shuffle())
                .skip_response(),
            Some(Order::AsIs) => Verdict::pass().skip_response(),
            Some(Order::Affinity) | None => Verdict::pass(),
        };
        verdict.remember(Ttl::HOUR.into())
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        let client = octets(self.lengths.of(response.query().client()).address());
        let Ok(message) = response.read() else {
            return ResponseVerdict::pass();
        };
        let rank = |address: IpAddr| stable_hash(&[client, octets(address)].concat(), 0);
        let ranks = message.answers().iter().map(|record| record.address().map(rank));
        // `None` sorts before any hash, so records without an address stay in front.
        let mut order: Vec<_> = ranks.zip(0u32..).collect();
        order.sort();
        ResponseVerdict::edit(ResponseEdit::new().permute(order.into_iter().map(|(_, index)| index)))
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

dnsweir_filter::export!(Rotation);
