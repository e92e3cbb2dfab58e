//! The link and its addresses, over rtnetlink.
//!
//! An existing link of the planned name is used as it is. We may delete it if we made it, or if it looks like
//! one that node-cache leaves: a dummy link, or a bridge without ports, with nothing but single addresses on
//! it. Any other link, above all `lo`, only gets addresses from us, and these carry a mark by which we
//! recognize them. An address stays, and the link with it, if another process is bound to it and no other
//! link carries it.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressProtocol};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, LinkBridge, LinkDummy, LinkUnspec};

use super::error::{Error, Kind, io_error};
use super::peers::others_hold;
use super::plan::Link;

/// The alias of a link that we made.
const ALIAS: &str = "dnsweir";

/// The protocol field of an address that we added. Kernels before 5.18 ignore it.
const MARK: AddressProtocol = AddressProtocol::Other(53);

/// A link as it is.
#[derive(Debug)]
pub struct Found {
    index: u32,
    up: bool,
    /// We may delete it.
    ours: bool,
    /// It has our alias.
    made_by_us: bool,
    addresses: Vec<Carried>,
}

#[derive(Debug)]
struct Carried {
    ip: IpAddr,
    marked: bool,
    message: AddressMessage,
}

/// The difference between a link and the plan for it.
#[derive(Debug)]
pub struct Difference {
    found: Option<Found>,
    /// Wanted, but not there.
    pub missing: Vec<IpAddr>,
    /// Wanted and there, but without the local route. The kernel adds the route with the address, but the
    /// route can be deleted alone.
    pub unrouted: Vec<IpAddr>,
    /// Ours, but not wanted.
    pub stale: Vec<IpAddr>,
    /// Would be stale if another process were not bound to it.
    pub spared: Vec<IpAddr>,
}

impl Difference {
    /// What is wrong with the link, if anything.
    pub(crate) fn of_link(&self) -> Option<&'static str> {
        match &self.found {
            None => Some("missing"),
            Some(found) if !found.up => Some("down"),
            Some(_) => None,
        }
    }

    /// Returns whether addresses have to be added.
    pub(crate) fn adds(&self) -> bool {
        !self.missing.is_empty() || !self.unrouted.is_empty()
    }

    /// Returns whether removing the stale addresses leaves the link empty.
    fn empties(&self, found: &Found) -> bool {
        let mut addresses = found.addresses.iter();
        addresses.all(|carried| is_automatic(carried.ip) || self.stale.contains(&carried.ip))
    }
}

/// Compares the link with the wanted one.
pub async fn compare(handle: &Handle, wanted: &Link) -> Result<Difference, Error> {
    let found = find(handle, &wanted.name).await?;
    let addresses = found.as_ref().map_or(&[][..], |found| &found.addresses);
    let missing = wanted.addresses.iter().filter(|ip| !carries(addresses, ip));
    let mut unrouted = Vec::new();
    // A link that is down has no routes; they come when it is set up.
    if found.as_ref().is_some_and(|found| found.up) {
        for &ip in wanted.addresses.iter().filter(|&ip| carries(addresses, ip)) {
            if !is_routed(handle, ip).await {
                unrouted.push(ip);
            }
        }
    }
    let ours = found.as_ref().is_some_and(|found| found.ours);
    let stale = addresses.iter().filter(|carried| {
        (ours || carried.marked) && !is_automatic(carried.ip) && !wanted.addresses.contains(&carried.ip)
    });
    let stale: Vec<IpAddr> = stale.map(|carried| carried.ip).collect();
    let spared = match &found {
        Some(found) => needed_here(handle, found.index, &wanted.name, &stale).await?,
        None => Vec::new(),
    };
    Ok(Difference {
        missing: missing.copied().collect(),
        unrouted,
        stale: stale.into_iter().filter(|ip| !spared.contains(ip)).collect(),
        spared,
        found,
    })
}

/// The addresses that another process is bound to and no other link carries.
async fn needed_here(handle: &Handle, index: u32, link: &str, ips: &[IpAddr]) -> Result<Vec<IpAddr>, Error> {
    let mut held = others_hold(ips);
    if held.is_empty() {
        return Ok(held);
    }
    let all = addresses(handle, None).await.map_err(|why| {
        let text = format!("cannot be compared with other links: {why}");
        error(Kind::InterfaceCheck, link, text)
    })?;
    let elsewhere = all.iter().filter(|message| message.header.index != index);
    let elsewhere: Vec<IpAddr> = elsewhere.filter_map(address_of).collect();
    held.retain(|ip| !elsewhere.contains(ip));
    Ok(held)
}

/// Creates the link if it is missing, sets it up, and adds missing addresses. Stale addresses stay. Returns
/// log lines for what was done.
pub async fn raise(handle: &Handle, wanted: &Link, difference: &Difference) -> Result<Vec<String>, Error> {
    let mut done = Vec::new();
    let (index, up) = match &difference.found {
        Some(found) => (found.index, found.up),
        None => {
            done.push(make(handle, &wanted.name).await?);
            let made = find(handle, &wanted.name).await?;
            let made = made.ok_or_else(|| error(Kind::InterfaceAdd, &wanted.name, "disappeared again"))?;
            (made.index, made.up)
        }
    };
    if !up {
        // IPv6 addresses only work on a link that is up.
        let up = handle
            .link()
            .set(LinkUnspec::new_with_index(index).up().build())
            .execute()
            .await;
        up.map_err(|why| {
            error(
                Kind::InterfaceAdd,
                &wanted.name,
                format!("cannot be set up: {}", io_error(why)),
            )
        })?;
    }
    // Removing and re-adding an address restores its route.
    let unrouted = |ip| difference.unrouted.contains(&ip);
    done.extend(take_off(handle, &wanted.name, difference, unrouted).await?);
    for &ip in difference.missing.iter().chain(&difference.unrouted) {
        let length = if ip.is_ipv4() { 32 } else { 128 };
        let mut request = handle.address().add(index, ip, length);
        let attributes = &mut request.message_mut().attributes;
        attributes.push(AddressAttribute::Protocol(MARK));
        if ip.is_ipv6() {
            // A link without neighbours has no duplicates, and detecting them takes a second.
            attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        match request.execute().await.map_err(io_error) {
            Ok(()) => done.push(format!("added {ip} to {}", wanted.name)),
            // Another process was faster.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => {
                let text = format!("cannot get the address {ip}: {why}");
                return Err(error(Kind::InterfaceAdd, &wanted.name, text));
            }
        }
    }
    Ok(done)
}

/// Removes stale addresses from the link.
pub(crate) async fn tidy(
    handle: &Handle,
    wanted: &Link,
    difference: &Difference,
) -> Result<Vec<String>, Error> {
    let stale = |ip| difference.stale.contains(&ip);
    take_off(handle, &wanted.name, difference, stale).await
}

async fn take_off(
    handle: &Handle,
    link: &str,
    difference: &Difference,
    which: impl Fn(IpAddr) -> bool,
) -> Result<Vec<String>, Error> {
    let mut done = Vec::new();
    let carried = difference.found.iter().flat_map(|found| &found.addresses);
    for carried in carried.filter(|carried| which(carried.ip)) {
        let deleted = handle
            .address()
            .del(carried.message.clone())
            .execute()
            .await
            .map_err(io_error);
        match deleted {
            Ok(()) => done.push(format!("removed {} from {link}", carried.ip)),
            Err(why) if why.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {}
            Err(why) => {
                let text = format!("cannot drop the address {}: {why}", carried.ip);
                return Err(error(Kind::InterfaceCheck, link, text));
            }
        }
    }
    Ok(done)
}

/// Removes our addresses from the link, and the link if it is ours and then empty. Returns log lines for what
/// was done, and the addresses that stay because another process is bound to them.
pub async fn lower(handle: &Handle, link: &Link) -> Result<(Vec<String>, Vec<IpAddr>), Error> {
    let nothing = Link {
        name: link.name.clone(),
        addresses: Vec::new(),
    };
    let difference = compare(handle, &nothing).await?;
    let done = match &difference.found {
        None => Vec::new(),
        Some(found) if found.ours && difference.empties(found) => {
            match handle.link().del(found.index).execute().await.map_err(io_error) {
                Ok(()) => vec![format!("deleted link {}", link.name)],
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => Vec::new(),
                Err(why) => {
                    let text = format!("cannot be deleted: {why}");
                    return Err(error(Kind::InterfaceCheck, &link.name, text));
                }
            }
        }
        Some(_) => tidy(handle, &nothing, &difference).await?,
    };
    Ok((done, difference.spared))
}

/// The addresses of a link that looks as if another node cache left it.
pub(crate) async fn made_by_others(handle: &Handle, name: &str) -> Result<Option<Vec<IpAddr>>, Error> {
    let found = find(handle, name).await?;
    let theirs = found.filter(|found| found.ours && !found.made_by_us);
    Ok(theirs.map(|found| {
        let ips = found.addresses.iter().map(|carried| carried.ip);
        ips.filter(|&ip| !is_automatic(ip)).collect()
    }))
}

/// Deletes links that we made under another name if all their addresses are on the wanted link too: an
/// earlier configuration's, whose process was killed. Returns log lines for what was done.
pub(crate) async fn lower_former(handle: &Handle, wanted: &Link) -> Result<Vec<String>, Error> {
    let failed = |why| {
        error(
            Kind::InterfaceCheck,
            &wanted.name,
            format!("cannot be compared with other links: {why}"),
        )
    };
    let mut done = Vec::new();
    for other in links(handle).await.map_err(failed)? {
        let Some(name) = name_of(&other).filter(|name| *name != wanted.name && is_made_by_us(&other)) else {
            continue;
        };
        let found = find(handle, name).await?.filter(|found| found.ours);
        let is_carried =
            |carried: &Carried| is_automatic(carried.ip) || wanted.addresses.contains(&carried.ip);
        let Some(former) = found.filter(|found| found.addresses.iter().all(is_carried)) else {
            continue;
        };
        match handle.link().del(former.index).execute().await.map_err(io_error) {
            Ok(()) => done.push(format!("deleted link {name}, in whose place is {}", wanted.name)),
            Err(why) if why.raw_os_error() == Some(libc::ENODEV) => {}
            Err(why) => {
                let text = format!("cannot be deleted: {why}");
                return Err(error(Kind::InterfaceCheck, name, text));
            }
        }
    }
    Ok(done)
}

/// Returns whether a link has our alias.
pub(super) fn is_made_by_us(link: &LinkMessage) -> bool {
    let mut attributes = link.attributes.iter();
    attributes.any(|attribute| matches!(attribute, LinkAttribute::IfAlias(alias) if alias == ALIAS))
}

async fn make(handle: &Handle, name: &str) -> Result<String, Error> {
    let dummy = LinkDummy::new(name).build();
    let kind = match handle.link().add(dummy).execute().await.map_err(io_error) {
        Ok(()) => "dummy link",
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => return Ok(format!("found link {name}")),
        Err(why) if why.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let bridge = LinkBridge::new(name).build();
            let made = handle.link().add(bridge).execute().await.map_err(io_error);
            made.map_err(|why| {
                let text = format!("cannot be created, neither as a dummy link nor as a bridge: {why}");
                error(Kind::InterfaceAdd, name, text)
            })?;
            "bridge without ports (the kernel has no dummy links) as"
        }
        Err(why) => {
            let hint = if why.kind() == io::ErrorKind::PermissionDenied {
                ": it needs root or the capability NET_ADMIN"
            } else {
                ""
            };
            return Err(error(
                Kind::InterfaceAdd,
                name,
                format!("cannot be created: {why}{hint}"),
            ));
        }
    };
    let Some(made) = find(handle, name).await? else {
        return Err(error(Kind::InterfaceAdd, name, "disappeared again"));
    };
    // The alias marks the link as ours; without it, the link still looks like node-cache's.
    let alias = LinkUnspec::new_with_index(made.index).alias(ALIAS).build();
    let _ = handle.link().set(alias).execute().await;
    Ok(format!("created {kind} {name}"))
}

/// All links of the node.
pub(super) async fn links(handle: &Handle) -> io::Result<Vec<LinkMessage>> {
    handle
        .link()
        .get()
        .execute()
        .try_collect()
        .await
        .map_err(io_error)
}

/// The addresses of the link with this index, or of all links.
pub(super) async fn addresses(handle: &Handle, index: Option<u32>) -> io::Result<Vec<AddressMessage>> {
    let request = handle.address().get();
    let request = match index {
        Some(index) => request.set_link_index_filter(index),
        None => request,
    };
    request.execute().try_collect().await.map_err(io_error)
}

async fn find(handle: &Handle, name: &str) -> Result<Option<Found>, Error> {
    let failed = |why| error(Kind::InterfaceCheck, name, format!("cannot be examined: {why}"));
    let links = links(handle).await.map_err(failed)?;
    let Some(link) = links.iter().find(|link| name_of(link) == Some(name)) else {
        return Ok(None);
    };
    let index = link.header.index;
    let addresses = addresses(handle, Some(index)).await.map_err(failed)?;
    let addresses: Vec<Carried> = addresses.into_iter().filter_map(carried).collect();

    let is_port = |other: &LinkMessage| {
        other
            .attributes
            .iter()
            .any(|attribute| matches!(attribute, LinkAttribute::Controller(to) if *to == index))
    };
    let is_kind = |wanted: &InfoKind| {
        link.attributes.iter().any(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => infos
                .iter()
                .any(|info| matches!(info, LinkInfo::Kind(kind) if kind == wanted)),
            _ => false,
        })
    };
    let single = |carried: &Carried| {
        let length = if carried.ip.is_ipv4() { 32 } else { 128 };
        is_automatic(carried.ip) || carried.message.header.prefix_len == length
    };
    let lonely = is_kind(&InfoKind::Dummy) || (is_kind(&InfoKind::Bridge) && !links.iter().any(is_port));
    Ok(Some(Found {
        index,
        up: link.header.flags.contains(LinkFlags::Up),
        ours: lonely && addresses.iter().all(single),
        made_by_us: is_made_by_us(link),
        addresses,
    }))
}

fn carries(addresses: &[Carried], ip: &IpAddr) -> bool {
    addresses.iter().any(|carried| carried.ip == *ip)
}

/// Returns whether the kernel routes the address locally.
async fn is_routed(handle: &Handle, ip: IpAddr) -> bool {
    let mut lookup = RouteMessage::default();
    (
        lookup.header.address_family,
        lookup.header.destination_prefix_length,
    ) = match ip {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    lookup.attributes.push(RouteAttribute::Destination(ip.into()));
    // Without any route, the lookup is an error.
    let found = handle.route().get(lookup).execute().try_collect::<Vec<_>>().await;
    found.is_ok_and(|routes| routes.iter().any(|route| route.header.kind == RouteType::Local))
}

fn carried(message: AddressMessage) -> Option<Carried> {
    let ip = address_of(&message)?;
    let marked = message.attributes.contains(&AddressAttribute::Protocol(MARK));
    Some(Carried { ip, marked, message })
}

/// The link's name in a link message.
pub(super) fn name_of(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

/// The address in an address message.
pub(super) fn address_of(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}

/// The destination in a route message, if it is an IP address.
pub(super) fn destination_of(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some((*ip).into()),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    })
}

/// Returns whether the kernel assigns this address by itself when a link is set up.
fn is_automatic(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if Ipv6Addr::is_unicast_link_local(&ip))
}

fn error(kind: Kind, link: &str, text: impl std::fmt::Display) -> Error {
    Error {
        kind,
        text: format!("link {link} {text}"),
    }
}
