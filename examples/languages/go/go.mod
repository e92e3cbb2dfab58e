module names

go 1.24
