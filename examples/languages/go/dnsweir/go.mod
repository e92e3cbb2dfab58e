// A place-holder that leads nowhere, which nobody can own (RFC 2606): until the package has a home, `replace` says where it is.
module dnsweir.example/dnsweir

go 1.24
