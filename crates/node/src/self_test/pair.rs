//! The pair of links that imitates a pod: what is sent into one end arrives at the other.
//!
//! The node's end has no address. It has routes to the source addresses, so that replies go back the way
//! queries came, and neighbour entries for them, so that none has to be resolved. The pod's end takes no part
//! in the node's traffic: replies have a hardware address that is not its own, so the kernel drops them after
//! our socket has read them.

use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};
use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::super::error::io_error;

/// The end where queries arrive.
pub(crate) const NODE_END: &str = "dnsweir-test";

/// The end that queries are written to.
pub(crate) const POD_END: &str = "dnsweir-pod";

/// The hardware address of the node's end, which marks the pair as ours.
pub(crate) const NODE_MAC: [u8; 6] = *b"\x02dnsw\x01";

/// The hardware address of the source addresses, which no link has.
pub(crate) const NOBODY_MAC: [u8; 6] = *b"\x02dnsw\x02";

/// Returns whether the pair exists and both ends are up.
pub async fn is_there(handle: &Handle) -> io::Result<bool> {
    let link = find(handle, NODE_END).await?;
    Ok(link.is_some_and(|link| is_ours(&link) && link.header.flags.contains(LinkFlags::LowerUp)))
}

/// Creates whatever is missing of the pair, its routes and its neighbours; recreates all of it if `anew`.
/// Returns whether the links were created.
pub async fn raise(handle: &Handle, sources: &[IpAddr], anew: bool) -> io::Result<bool> {
    if anew {
        lower(handle).await?;
    }
    let mut made = false;
    if !is_there(handle).await? {
        lower(handle).await?;
        let pair = LinkVeth::new(NODE_END, POD_END)
            .address(NODE_MAC.to_vec())
            .build();
        handle.link().add(pair).execute().await.map_err(io_error)?;
        made = true;
    }
    for name in [POD_END, NODE_END] {
        let link = find(handle, name).await?.ok_or(io::ErrorKind::NotFound)?;
        let index = link.header.index;
        if made {
            // The kernel must not generate addresses, and so announces none. Without IPv6 this fails.
            let no_addresses = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
            let set = LinkUnspec::new_with_index(index)
                .append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![no_addresses]));
            let _ = handle.link().set(set.build()).execute().await;
            let up = LinkUnspec::new_with_index(index).up().build();
            handle.link().set(up).execute().await.map_err(io_error)?;
        }
        if name == NODE_END {
            for &source in sources {
                lead_back(handle, index, source).await?;
            }
        }
    }
    Ok(made)
}

/// Adds a route and a neighbour entry for a source address.
async fn lead_back(handle: &Handle, index: u32, source: IpAddr) -> io::Result<()> {
    let neighbour = handle.neighbours().add(index, source);
    known(neighbour.link_layer_address(&NOBODY_MAC).execute().await)?;
    let route = match source {
        IpAddr::V4(ip) => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .destination_prefix(ip, 32)
            .output_interface(index)
            .scope(RouteScope::Link)
            .build(),
        IpAddr::V6(ip) => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
            .destination_prefix(ip, 128)
            .output_interface(index)
            .build(),
    };
    known(handle.route().add(route).execute().await)
}

/// An entry that exists already is fine.
fn known(outcome: Result<(), rtnetlink::Error>) -> io::Result<()> {
    match outcome.map_err(io_error) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    }
}

/// Removes the pair. Returns whether there was one; a link of this name that is not ours stays.
///
/// # Errors
/// If the kernel refuses.
pub async fn lower(handle: &Handle) -> io::Result<bool> {
    let Some(link) = find(handle, NODE_END).await? else {
        return Ok(false);
    };
    // Another program's link stays.
    if !is_ours(&link) {
        return Ok(false);
    }
    match handle
        .link()
        .del(link.header.index)
        .execute()
        .await
        .map_err(io_error)
    {
        Err(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(error),
        _ => Ok(true),
    }
}

fn is_ours(link: &LinkMessage) -> bool {
    link.attributes
        .contains(&LinkAttribute::Address(NODE_MAC.to_vec()))
}

async fn find(handle: &Handle, name: &str) -> io::Result<Option<LinkMessage>> {
    let found = handle.link().get().match_name(name).execute().try_next().await;
    match found.map_err(io_error) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        found => found,
    }
}
