//! Response policy zones: policies for names, clients and addresses, in the format in which vendors publish
//! them (draft-vixie-dnsop-dns-rpz-00). The first zone with a matching policy decides.

mod zone;

use dnsweir_filter::{
    Answer, Filter, Invalid, Manifest, NameBuf, Query, Rcode, Response, ResponseEdit, ResponseVerdict, Setup,
    Transport, Ttl, Type, Verdict, count_with,
};

use zone::{Action, Zone};

/// The filter.
pub struct PolicyZones(Vec<Zone>);

impl Filter for PolicyZones {
    fn configure(setup: Setup<'_>) -> Result<(PolicyZones, Manifest), Invalid> {
        let nodes = setup.config().nodes(&["zone"]).into_iter();
        let zones: Vec<Zone> = nodes.filter_map(|node| Zone::read(node).ok()).collect();
        let mut manifest = Manifest::new().queries();
        if zones.iter().any(|zone| !zone.answers.is_empty()) {
            manifest = manifest.responses().messages();
        }
        Ok((PolicyZones(zones), manifest))
    }

    fn query(&mut self, query: &Query<'_>) -> Verdict {
        let action = self.find(|zone| zone.action_for(query));
        let verdict = match action {
            None => Verdict::pass(),
            // The zone's policies for answers do not apply either.
            Some(Action::Pass) => Verdict::pass().skip_response(),
            Some(Action::Drop) => Verdict::drop_for("policy zone"),
            Some(Action::TcpOnly) if query.transport() != Transport::Udp => Verdict::pass(),
            Some(Action::TcpOnly) => {
                Verdict::answer(Answer::noerror()).edit(ResponseEdit::new().truncated(true))
            }
            Some(Action::Alias(target)) => match target.as_name().wildcard_base() {
                Some(base) => NameBuf::join(query.name().labels(), base)
                    .map_or(Verdict::refuse(Rcode::NXDOMAIN), Verdict::alias),
                None => Verdict::alias(target.clone()),
            },
            Some(action) => Verdict::answer(local(query, action)),
        };
        // The host remembers verdicts without regard to client and transport.
        match action {
            Some(Action::TcpOnly) => verdict,
            _ if self.0.iter().any(|zone| !zone.clients.is_empty()) => verdict,
            _ => verdict.remember(Ttl::MINUTE.into()),
        }
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        let Ok(message) = response.read() else {
            return ResponseVerdict::replace(Answer::new(Rcode::SERVFAIL));
        };
        let mut addresses = message.addresses();
        match addresses.find_map(|address| self.find(|zone| zone.answers.get(address))) {
            None | Some(Action::Pass) => ResponseVerdict::pass(),
            Some(Action::Drop) => ResponseVerdict::drop_for("policy zone"),
            Some(Action::TcpOnly) => ResponseVerdict::edit(ResponseEdit::new().truncated(true)),
            Some(action) => ResponseVerdict::replace(local(response.query(), action)),
        }
    }
}

impl PolicyZones {
    /// The policy of the first zone that has one.
    fn find<'z>(&'z self, ask: impl Fn(&'z Zone) -> Option<&'z Action>) -> Option<&'z Action> {
        let (zone, action) = self.0.iter().find_map(|zone| Some((zone, ask(zone)?)))?;
        count_with("hits", &[("zone", &zone.name)], 1);
        Some(action)
    }
}

/// The answer of a policy. An alias cannot be resolved in the response phase any more.
fn local(query: &Query<'_>, action: &Action) -> Answer {
    match action {
        Action::Nxdomain => Answer::new(Rcode::NXDOMAIN),
        Action::Data(data) => {
            let asked = |rtype| [rtype, Type::ANY].contains(&query.qtype());
            let data = data.iter().filter(|record| asked(record.rtype()));
            data.fold(Answer::noerror(), |answer, record| {
                answer.record(query.name(), record.ttl(), record.rdata())
            })
        }
        _ => Answer::noerror(),
    }
}

dnsweir_filter::export!(PolicyZones);
