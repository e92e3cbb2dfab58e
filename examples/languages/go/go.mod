module names

go 1.24

require dnsweir.example/dnsweir v0.0.0

replace dnsweir.example/dnsweir => ./dnsweir
