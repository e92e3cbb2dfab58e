//! `cache` and `forward`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::blocks::{Plugin, PluginOption};
use super::document::Node;
use super::draft::{Draft, spelled, whole};
use super::key;
use super::sites::are_about;
use super::tokens::Token;
use super::values::duration;

/// CoreDNS's default maximum and minimum TTL, in seconds.
const SUCCESS: (u64, u64) = (3600, 5);
const DENIAL: (u64, u64) = (1800, 5);

/// Describes a time in error messages.
const TIME: &str = "a duration such as 5s";

/// Translates `cache [TTL] [ZONES]` for a zone; `None` if nothing is cached there.
pub fn cache(draft: &mut Draft, plugin: &Plugin, zone: &str) -> Option<Node> {
    let ttl = plugin
        .arguments
        .first()
        .and_then(|word| word.text.parse::<u64>().ok());
    let (mut success, mut denial) = (SUCCESS, DENIAL);
    if let Some(ttl) = ttl {
        (success.0, denial.0) = (ttl, ttl);
    }
    let mut others = Vec::new();
    let mut disabled = Vec::new();
    for option in &plugin.options {
        match option.name.text.as_str() {
            "success" => success = capacity(draft, option, success)?,
            "denial" => denial = capacity(draft, option, denial)?,
            "disable" => disable(draft, option, zone, &mut disabled)?,
            "prefetch" => others.extend(prefetch(draft, option)?),
            "serve_stale" => others.push(serve_stale(draft, option)?),
            "servfail" => {
                let time = draft.argument(option, TIME, duration)?;
                let time = time.clamp(Duration::from_secs(1), Duration::from_secs(300));
                others.push(Node::new("failure").text(&spelled(time)));
            }
            _ => {}
        }
    }
    if ["success", "denial"].iter().all(|kind| disabled.contains(kind)) {
        return None;
    }
    let bounds = |name: &str, (max, min): (u64, u64)| {
        let (min, max) = (min.min(max).min(WEEK), max.min(WEEK));
        let node = Node::new(name)
            .property("min", &format!("{min}s"))
            .property("max", &format!("{max}s"));
        match disabled.contains(&name) {
            true => node.raw("store=#false"),
            false => node,
        }
    };
    let node = Node::new("cache")
        .from(plugin.span())
        .child(bounds("success", success))
        .child(bounds("denial", denial));
    Some(node.children(others))
}

/// The highest TTL that our cache supports, in seconds.
const WEEK: u64 = 7 * 24 * 3600;

/// `disable success|denial [ZONES…]`
fn disable(
    draft: &mut Draft,
    option: &PluginOption,
    zone: &str,
    disabled: &mut Vec<&'static str>,
) -> Option<()> {
    let (kind, zones) = option.arguments.split_first()?;
    let Some(kind) = ["success", "denial"]
        .into_iter()
        .find(|known| *known == kind.text)
    else {
        let problem = format!("`{}` cannot be disabled", kind.text);
        draft.mistake(kind.span, problem, "valid here: success, denial");
        return None;
    };
    if are_about(zones, zone) {
        disabled.push(kind);
    }
    Some(())
}

/// `success CAPACITY [TTL] [MINTTL]`
fn capacity(draft: &mut Draft, option: &PluginOption, (max, min): (u64, u64)) -> Option<(u64, u64)> {
    let numbers: Option<Vec<u64>> = option
        .arguments
        .iter()
        .map(|word| word.text.parse().ok())
        .collect();
    match numbers.as_deref() {
        Some([_]) => Some((max, min)),
        Some([_, max]) if *max > 0 => Some((*max, min)),
        Some([_, max, min]) if *max > 0 => Some((*max, *min)),
        _ => {
            let problem = format!("`{}` needs a capacity and TTLs in seconds", option.name.text);
            let help = format!("write it like: {} 9984 30", option.name.text);
            draft.mistake(option.span(), problem, help);
            None
        }
    }
}

/// `prefetch AMOUNT [DURATION] [PERCENTAGE%]`; nothing to write if the amount is zero.
fn prefetch(draft: &mut Draft, option: &PluginOption) -> Option<Option<Node>> {
    let word = |index: usize| option.arguments.get(index).map(|word| word.text.as_str());
    let amount: Option<u64> = word(0).and_then(|text| text.parse().ok());
    let apart = word(1).is_none_or(|text| duration(text).is_some());
    let percent: Option<u64> = word(2).map_or(Some(10), |text| text.strip_suffix('%')?.parse().ok());
    match (amount, percent.filter(|percent| (10..=90).contains(percent))) {
        (Some(0), Some(_)) if apart => Some(None),
        (Some(amount), Some(percent)) if apart && option.arguments.len() <= 3 => {
            let hits = format!("hits={}", amount.min(u64::from(u16::MAX)));
            Some(Some(
                Node::new("prefetch")
                    .raw(&hits)
                    .raw(&format!("percent={percent}")),
            ))
        }
        _ => {
            draft.mistake(
                option.span(),
                "this is not a valid `prefetch`",
                "write it like: prefetch 10 1m 10%",
            );
            None
        }
    }
}

/// `serve_stale [DURATION] [immediate|verify [TIMEOUT]] [TTL] [RECHECK]`
fn serve_stale(draft: &mut Draft, option: &PluginOption) -> Option<Node> {
    let mut words = option.arguments.iter().map(|word| word.text.as_str());
    let second = Duration::from_secs(1);
    let up_to = words.next().map_or(Some(3600 * second), duration);
    let after = match words.next().map(str::to_ascii_lowercase).as_deref() {
        None | Some("immediate") => Some(Duration::ZERO),
        // Until the upstream has failed, at most five seconds.
        Some("verify") => match words.next().map_or(Some(Duration::ZERO), duration) {
            Some(Duration::ZERO) => Some(5 * second),
            timeout => timeout,
        },
        Some(_) => None,
    };
    let ttl = words.next().map_or(Some(Duration::ZERO), duration);
    // `failure` sets the retry interval.
    let recheck = words.next().is_none_or(|text| duration(text).is_some());
    let (Some(up_to), Some(after), Some(ttl), true, None) = (up_to, after, ttl, recheck, words.next()) else {
        draft.mistake(
            option.span(),
            "this is not a valid `serve_stale`",
            "write it like: serve_stale 1h immediate",
        );
        return None;
    };
    let up_to = up_to.clamp(second, Duration::from_secs(WEEK));
    let node = Node::new("serve-stale")
        .text(&spelled(up_to))
        .property("ttl", &spelled(ttl.clamp(second, 3600 * second)))
        .property("after", &spelled(after.min(10 * second)));
    Some(node)
}

/// Translates the `forward`s of a zone, up to the first that leaves nothing to later ones.
pub fn forwards(draft: &mut Draft, plugins: &[&Plugin], any: bool) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (index, plugin) in plugins.iter().enumerate() {
        let last = index + 1 == plugins.len();
        let ways = ways(draft, plugin);
        let Some((last_way, others)) = ways.split_last() else {
            continue;
        };
        for way in others {
            // Translated as one of several that are tried in turn; an answer of any of them is final.
            let (node, _) = forward(draft, plugin, way.clone(), any, true);
            let comment = "CoreDNS has all upstreams in one list, in whichever way they are asked. Here, those of the next way are asked after a failure.";
            nodes.push(
                node.without("next")
                    .comment(comment)
                    .child(Node::new("next").text("SERVFAIL")),
            );
        }
        let (node, passes_on) = forward(draft, plugin, last_way.clone(), any, last);
        nodes.push(node);
        if !passes_on {
            break;
        }
    }
    nodes
}

/// Translates `forward FROM TO…` for upstreams with one protocol; also returns whether it passes anything on.
fn forward(draft: &mut Draft, plugin: &Plugin, mut node: Node, any: bool, last: bool) -> (Node, bool) {
    node = node.from(plugin.span());
    let mut except = Node::new("except");
    let mut next: Vec<String> = Vec::new();
    for option in &plugin.options {
        match option.name.text.as_str() {
            "except" => {
                let zones = draft.zones(&option.arguments);
                except = zones.iter().fold(except, |node, zone| node.text(zone));
            }
            "next" => next.extend(option.arguments.iter().map(|word| word.text.to_ascii_uppercase())),
            "next_on_nodata" => next.push("NODATA".into()),
            "failover" => {
                for word in &option.arguments {
                    if !["SERVFAIL", "REFUSED"].contains(&word.text.to_ascii_uppercase().as_str()) {
                        let problem = format!("no other upstream is asked after {}", word.text);
                        draft.mistake(
                            word.span,
                            problem,
                            "remove it; `next` asks the upstreams of another `forward`",
                        );
                    }
                }
            }
            _ => node = node.children(setting(draft, option).map(|setting| setting.from(option.span()))),
        }
    }
    if ["tls://", "https://", "quic://"]
        .iter()
        .any(|scheme| node.begins_with(scheme))
    {
        // TLS already uses TCP.
        node = node.without("protocol");
    }
    if !any {
        node = node.child(Node::new("any").comment("CoreDNS forwards ANY unless the plugin `any` is there."));
    }
    let excepts = except != Node::new("except");
    if excepts {
        node = node.child(except);
    }
    // Without another `forward`, CoreDNS returns the answer it has.
    if !next.is_empty() && !last {
        let known = ["NXDOMAIN", "NODATA", "SERVFAIL", "REFUSED"];
        if let Some(unknown) = next.iter().find(|outcome| !known.contains(&outcome.as_str())) {
            let problem = format!("no other `forward` is asked after {unknown}");
            draft.mistake(
                plugin.span(),
                problem,
                format!("valid in `next`: {}", known.join(", ")),
            );
        }
        node = node.child(
            next.iter()
                .fold(Node::new("next"), |node, outcome| node.text(outcome)),
        );
        return (node, true);
    }
    (node, excepts)
}

/// An option that maps to one setting.
fn setting(draft: &mut Draft, option: &PluginOption) -> Option<Node> {
    let ms = Duration::from_millis;
    match option.name.text.as_str() {
        "tls" => tls(draft, option),
        "doh_method" => {
            let word = |text: &str| ["GET", "POST"].contains(&text).then(|| text.to_owned());
            Some(Node::new("https-method").text(&draft.argument(option, "GET or POST", word)?))
        }
        "force_tcp" => Some(Node::new("protocol").text("tcp")),
        // In CoreDNS, TCP overrides this.
        "prefer_udp" => None,
        "policy" => {
            let word = |text: &str| match text {
                "random" | "sequential" => Some(text.to_owned()),
                "round_robin" => Some("round-robin".to_owned()),
                _ => None,
            };
            let policy = draft.argument(option, "one of random, round_robin, sequential", word)?;
            Some(Node::new("policy").text(&policy))
        }
        "max_fails" => {
            let fails = draft.argument(option, "a number", number)?;
            Some(Node::new("max-fails").number(fails.min(1000)))
        }
        "max_concurrent" => most(draft, option, "concurrent", 1_000_000),
        "max_connect_attempts" => most(draft, option, "attempts", 10),
        "max_idle_conns" => most(draft, option, "connections", 64),
        "read_timeout" => lasting(draft, option, "timeout", ms(10)..=ms(5000)),
        "expire" => lasting(draft, option, "idle", ms(100)..=ms(3_600_000)),
        // 0 is CoreDNS's default: no limit.
        "max_age"
            if option
                .arguments
                .iter()
                .any(|age| duration(&age.text) == Some(ms(0))) =>
        {
            None
        }
        "max_age" => lasting(draft, option, "max-age", ms(1000)..=ms(86_400_000)),
        "health_check" => {
            let (every, others) = option.arguments.split_first()?;
            let Some(every) = duration(&every.text) else {
                draft.mistake(every.span, format!("`health_check` needs {TIME}"), "");
                return None;
            };
            let words: Vec<&str> = others.iter().map(|word| word.text.as_str()).collect();
            if !matches!(
                words[..],
                [] | ["no_rec"] | ["domain", _] | ["no_rec", "domain", _] | ["domain", _, "no_rec"]
            ) {
                let help = "write it like: health_check 5s no_rec domain example.org";
                draft.mistake(option.span(), "this is not a valid `health_check`", help);
            }
            let node = Node::new("probe").text(&spelled(every.clamp(ms(10), ms(60_000))));
            Some(match words[..] {
                [] => node,
                _ => node.comment("Upstreams are always probed for the NS records of their zone."),
            })
        }
        _ => None,
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// A numeric setting, capped at our maximum; 0 is CoreDNS's default and is not written.
fn most(draft: &mut Draft, option: &PluginOption, name: &str, ours: u64) -> Option<Node> {
    let most = draft.argument(option, "a number", number)?;
    (most > 0).then(|| Node::new(name).number(most.min(ours)))
}

/// A time setting, clamped to our bounds.
fn lasting(
    draft: &mut Draft,
    option: &PluginOption,
    name: &str,
    within: RangeInclusive<Duration>,
) -> Option<Node> {
    let time = draft.argument(option, TIME, duration)?;
    Some(Node::new(name).text(&spelled(time.clamp(*within.start(), *within.end()))))
}

/// One `forward "ADDRESS"…` per protocol, because all upstreams of our `forward` share one.
fn ways(draft: &mut Draft, plugin: &Plugin) -> Vec<Node> {
    let [from, to @ ..] = &plugin.arguments[..] else {
        draft.mistake(
            plugin.span(),
            "`forward` needs a name and an upstream",
            "write it like: forward . 192.0.2.1",
        );
        return Vec::new();
    };
    if let Err((problem, help)) = key::zones(&from.text) {
        draft.mistake(from.span, problem, help);
    }
    if to.is_empty() {
        draft.mistake(
            plugin.span(),
            "`forward` needs an upstream",
            "write it like: forward . 192.0.2.1",
        );
        return Vec::new();
    }
    let name = servername(draft, plugin);
    let mut ways: Vec<(Option<&str>, Vec<String>)> = Vec::new();
    for word in to {
        let (scheme, text) = match word.text.split_once("://") {
            None => (None, word.text.as_str()),
            Some(("dns", rest)) => (None, rest),
            Some((scheme @ ("tls" | "https" | "quic"), rest)) => (Some(scheme), rest),
            Some((scheme, _)) => {
                let problem = format!("upstreams cannot be asked over {scheme}://");
                let help = "write the address of a server that answers over UDP, TCP, tls:// or https://";
                draft.mistake(word.span, problem, help);
                continue;
            }
        };
        let text = match scheme {
            Some(scheme) => encrypted(draft, word, scheme, text, name),
            None => plain(draft, word, text),
        };
        let Some(text) = text else { continue };
        match ways.iter_mut().find(|(known, _)| *known == scheme) {
            Some((_, known)) if known.contains(&text) => {}
            Some((_, known)) => known.push(text),
            None => ways.push((scheme, vec![text])),
        }
    }
    let node =
        |(_, addresses): (_, Vec<String>)| Node::new("forward").texts(addresses.iter().map(String::as_str));
    ways.into_iter().map(node).collect()
}

/// `tls_servername NAME`
fn servername<'p>(draft: &mut Draft, plugin: &'p Plugin) -> Option<&'p str> {
    let option = plugin
        .options
        .iter()
        .find(|option| option.name.text == "tls_servername")?;
    match &option.arguments[..] {
        [name] => Some(&name.text),
        _ => {
            draft.mistake(
                option.span(),
                "`tls_servername` needs a name",
                "write it like: tls_servername dns.quad9.net",
            );
            None
        }
    }
}

/// Translates an upstream without a scheme.
fn plain(draft: &mut Draft, word: &Token, text: &str) -> Option<String> {
    // Connecting to the unspecified address reaches the local host.
    let own = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new([127, 0, 0, 1].into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    };
    if let Ok(address) = text.parse::<SocketAddr>().map(own) {
        return Some(address.to_string());
    }
    let bare = text.split('%').next().unwrap_or(text);
    let address = bare.parse::<IpAddr>().is_ok() || text.starts_with('[');
    if address || text.starts_with('/') {
        return Some(text.to_owned());
    }
    // Relative to the working folder; `root` does not apply.
    let path = whole(&draft.folder, text);
    if !Path::new(&path).is_file() {
        let problem = format!("{text} is neither an address nor a file");
        let help = "write the upstream's address, or a path such as /etc/resolv.conf";
        draft.mistake(word.span, problem, help);
        return None;
    }
    Some(path)
}

/// `tls://IP[%NAME][:PORT]`; `name` is the common one, for upstreams without their own.
fn encrypted(
    draft: &mut Draft,
    word: &Token,
    scheme: &str,
    text: &str,
    name: Option<&str>,
) -> Option<String> {
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    if host.contains('%') {
        return Some(format!("{scheme}://{text}"));
    }
    let parsed = match host.parse::<SocketAddr>() {
        Ok(address) => Some((address.ip(), format!(":{}", address.port()))),
        Err(_) => {
            let bare = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'))
                .unwrap_or(host);
            bare.parse::<IpAddr>().ok().map(|ip| (ip, String::new()))
        }
    };
    let Some((ip, port)) = parsed else {
        let problem = format!("{host} is not an address");
        draft.mistake(
            word.span,
            problem,
            "write the upstream's address, and its name behind it: tls://9.9.9.9%dns.quad9.net",
        );
        return None;
    };
    let name = name.map(|name| format!("%{name}")).unwrap_or_default();
    Some(match ip {
        IpAddr::V4(ip) => format!("{scheme}://{ip}{name}{port}{path}"),
        IpAddr::V6(ip) => format!("{scheme}://[{ip}]{name}{port}{path}"),
    })
}

/// `tls [CERT KEY] [CA]`
fn tls(draft: &mut Draft, option: &PluginOption) -> Option<Node> {
    let words: Vec<&str> = option.arguments.iter().map(|word| word.text.as_str()).collect();
    let (identity, ca) = match words[..] {
        [] => return None,
        [ca] => (None, Some(ca)),
        [certificate, key] => (Some((certificate, key)), None),
        [certificate, key, ca] => (Some((certificate, key)), Some(ca)),
        _ => {
            draft.mistake(
                option.span(),
                "this is not a valid `tls`",
                "write it like: tls CERTIFICATE KEY CA",
            );
            return None;
        }
    };
    let certificate = |(file, key): (&str, &str)| {
        Node::new("certificate")
            .text(&draft.path(file))
            .property("key", &draft.path(key))
    };
    let ca = ca.map(|ca| Node::new("ca").text(&draft.path(ca)));
    Some(Node::new("tls").children(ca.into_iter().chain(identity.map(certificate))))
}
