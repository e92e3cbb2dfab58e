//! The filters that come with the proxy: ordinary ones, embedded so that nothing needs to be installed
//! beside it.

/// Every built-in filter by name, as the module that cargo left.
pub const BUILTINS: &[(&str, &[u8])] = &[
    ("hosts", include_bytes!(env!("DNSWEIR_FILTER_HOSTS"))),
    ("log", include_bytes!(env!("DNSWEIR_FILTER_LOG"))),
    ("nodecache", include_bytes!(env!("DNSWEIR_FILTER_NODECACHE"))),
    ("rewrite", include_bytes!(env!("DNSWEIR_FILTER_REWRITE"))),
];
