//! The link and its addresses, over rtnetlink.
//!
//! A link of the planned name that exists is taken as it is. It is ours to delete when we made it, or
//! when it looks as node-cache leaves one: a dummy link, or a bridge without ports, with nothing but
//! single addresses on it. Any other link, `lo` above all, only gets addresses from us, and these bear a
//! mark by which they are known again.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressProtocol};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkDummy, LinkUnspec};

use super::plan::Link;
use super::{Error, Kind};

/// What we write into the alias of a link that we made.
const ALIAS: &str = "dnsweir";

/// What we write into the protocol field of an address that we added. Kernels before 5.18 drop it.
const MARK: AddressProtocol = AddressProtocol::Other(53);

/// A link as it is.
#[derive(Debug)]
pub struct Found {
    index: u32,
    up: bool,
    /// May be deleted by us.
    ours: bool,
    addresses: Vec<Carried>,
}

#[derive(Debug)]
struct Carried {
    ip: IpAddr,
    marked: bool,
    message: AddressMessage,
}

/// What differs between a link as it is and as it ought to be.
#[derive(Debug)]
pub struct Difference {
    found: Option<Found>,
    /// Wanted, and not there.
    pub missing: Vec<IpAddr>,
    /// Ours, and not wanted.
    pub stale: Vec<IpAddr>,
}

impl Difference {
    /// What stands in the link's way, if anything.
    pub fn of_link(&self) -> Option<&'static str> {
        match &self.found {
            None => Some("missing"),
            Some(found) if !found.up => Some("down"),
            Some(_) => None,
        }
    }
}

/// Compares what is there with what is wanted.
pub async fn compare(handle: &Handle, wanted: &Link) -> Result<Difference, Error> {
    let found = find(handle, &wanted.name).await?;
    let addresses = found.as_ref().map_or(&[][..], |found| &found.addresses);
    let missing = wanted
        .addresses
        .iter()
        .filter(|ip| !addresses.iter().any(|carried| carried.ip == **ip));
    let ours = found.as_ref().is_some_and(|found| found.ours);
    let stale = addresses.iter().filter(|carried| {
        (ours || carried.marked) && !is_automatic(carried.ip) && !wanted.addresses.contains(&carried.ip)
    });
    Ok(Difference {
        missing: missing.copied().collect(),
        stale: stale.map(|carried| carried.ip).collect(),
        found,
    })
}

/// Makes the link if it is missing, sets it up, and adds the addresses that are missing. Stale addresses
/// stay. Returns what it did, in words.
pub async fn raise(handle: &Handle, wanted: &Link, difference: &Difference) -> Result<Vec<String>, Error> {
    let mut done = Vec::new();
    let (index, up) = match &difference.found {
        Some(found) => (found.index, found.up),
        None => {
            done.push(make(handle, &wanted.name).await?);
            let made = find(handle, &wanted.name).await?;
            let made = made.ok_or_else(|| error(Kind::InterfaceAdd, &wanted.name, "is gone again"))?;
            (made.index, made.up)
        }
    };
    if !up {
        // IPv6 addresses work on links that are up, only.
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
    for &ip in &difference.missing {
        let length = if ip.is_ipv4() { 32 } else { 128 };
        let mut request = handle.address().add(index, ip, length);
        let attributes = &mut request.message_mut().attributes;
        attributes.push(AddressAttribute::Protocol(MARK));
        if ip.is_ipv6() {
            // Nobody else has the address on a link without neighbours; detecting that takes a second.
            attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        match request.execute().await.map_err(io_error) {
            Ok(()) => done.push(format!("added {ip} to {}", wanted.name)),
            // Someone was faster.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => {
                let text = format!("cannot carry {ip}: {why}");
                return Err(error(Kind::InterfaceAdd, &wanted.name, text));
            }
        }
    }
    Ok(done)
}

/// Takes stale addresses off the link.
pub async fn tidy(handle: &Handle, wanted: &Link, difference: &Difference) -> Result<Vec<String>, Error> {
    let mut done = Vec::new();
    let carried = difference.found.iter().flat_map(|found| &found.addresses);
    for carried in carried.filter(|carried| difference.stale.contains(&carried.ip)) {
        let deleted = handle
            .address()
            .del(carried.message.clone())
            .execute()
            .await
            .map_err(io_error);
        match deleted {
            Ok(()) => done.push(format!("took {} off {}", carried.ip, wanted.name)),
            Err(why) if why.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {}
            Err(why) => {
                let text = format!("cannot be rid of {}: {why}", carried.ip);
                return Err(error(Kind::InterfaceCheck, &wanted.name, text));
            }
        }
    }
    Ok(done)
}

/// Takes away what the link carries for us beside `kept`; without any, and if it is ours, the link.
pub async fn lower(handle: &Handle, link: &Link, kept: &[IpAddr]) -> Result<Vec<String>, Error> {
    let rest = Link {
        name: link.name.clone(),
        addresses: kept.to_vec(),
    };
    let difference = compare(handle, &rest).await?;
    match &difference.found {
        None => Ok(Vec::new()),
        Some(found) if found.ours && kept.is_empty() => {
            match handle.link().del(found.index).execute().await.map_err(io_error) {
                Ok(()) => Ok(vec![format!("deleted link {}", link.name)]),
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
                Err(why) => Err(error(
                    Kind::InterfaceCheck,
                    &link.name,
                    format!("cannot be deleted: {why}"),
                )),
            }
        }
        Some(_) => tidy(handle, &rest, &difference).await,
    }
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
                let text = format!("cannot be made, neither as a dummy link nor as a bridge: {why}");
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
                format!("cannot be made: {why}{hint}"),
            ));
        }
    };
    let Some(made) = find(handle, name).await? else {
        return Err(error(Kind::InterfaceAdd, name, "is gone again"));
    };
    // The alias says whose it is; without it, the link still looks like node-cache's.
    let alias = LinkUnspec::new_with_index(made.index).alias(ALIAS).build();
    let _ = handle.link().set(alias).execute().await;
    Ok(format!("made {kind} {name}"))
}

async fn find(handle: &Handle, name: &str) -> Result<Option<Found>, Error> {
    let failed = |why| {
        error(
            Kind::InterfaceCheck,
            name,
            format!("cannot be looked at: {}", io_error(why)),
        )
    };
    let links: Vec<LinkMessage> = handle
        .link()
        .get()
        .execute()
        .try_collect()
        .await
        .map_err(failed)?;
    let Some(link) = links.iter().find(|link| name_of(link) == Some(name)) else {
        return Ok(None);
    };
    let index = link.header.index;
    let addresses = handle.address().get().set_link_index_filter(index).execute();
    let addresses: Vec<AddressMessage> = addresses.try_collect().await.map_err(failed)?;
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
        addresses,
    }))
}

fn carried(message: AddressMessage) -> Option<Carried> {
    let ip = address_of(&message)?;
    let marked = message.attributes.contains(&AddressAttribute::Protocol(MARK));
    Some(Carried { ip, marked, message })
}

/// The name that a message about a link bears.
pub(super) fn name_of(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

/// The address that a message about an address is about.
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

/// Whether the kernel makes up such an address by itself when a link is set up.
fn is_automatic(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if Ipv6Addr::is_unicast_link_local(&ip))
}

fn error(kind: Kind, link: &str, text: impl std::fmt::Display) -> Error {
    Error {
        kind,
        text: format!("link {link} {text}"),
    }
}

fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}
