//! The filters that come with the proxy: ordinary ones, embedded so that nothing needs to be installed
//! beside it.

/// Every built-in filter by name, as the module that cargo left.
pub const BUILTINS: &[(&str, &[u8])] = &[
    ("hosts", include_bytes!(env!("DNSWEIR_FILTER_HOSTS"))),
    ("log", include_bytes!(env!("DNSWEIR_FILTER_LOG"))),
    ("nodecache", include_bytes!(env!("DNSWEIR_FILTER_NODECACHE"))),
    ("rewrite", include_bytes!(env!("DNSWEIR_FILTER_REWRITE"))),
];

/// The code of `builtin:NAME`.
pub fn builtin(name: &str) -> Option<&'static [u8]> {
    BUILTINS
        .iter()
        .find_map(|(other, code)| (*other == name).then_some(*code))
}

/// All names, for an error message.
pub(super) fn names() -> String {
    BUILTINS
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}
