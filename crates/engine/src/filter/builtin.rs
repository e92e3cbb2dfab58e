//! The filters that come with the proxy: ordinary ones, embedded so that nothing else needs to be installed.

/// Every built-in filter by name, as the module that cargo built.
pub const BUILTINS: &[(&str, &[u8])] = &[
    ("acl", include_bytes!(env!("DNSWEIR_FILTER_ACL"))),
    ("dns64", include_bytes!(env!("DNSWEIR_FILTER_DNS64"))),
    ("hosts", include_bytes!(env!("DNSWEIR_FILTER_HOSTS"))),
    ("log", include_bytes!(env!("DNSWEIR_FILTER_LOG"))),
    ("minimal", include_bytes!(env!("DNSWEIR_FILTER_MINIMAL"))),
    ("nodecache", include_bytes!(env!("DNSWEIR_FILTER_NODECACHE"))),
    ("rebinding", include_bytes!(env!("DNSWEIR_FILTER_REBINDING"))),
    ("rewrite", include_bytes!(env!("DNSWEIR_FILTER_REWRITE"))),
    ("rotation", include_bytes!(env!("DNSWEIR_FILTER_ROTATION"))),
    ("template", include_bytes!(env!("DNSWEIR_FILTER_TEMPLATE"))),
    ("whoami", include_bytes!(env!("DNSWEIR_FILTER_WHOAMI"))),
];
