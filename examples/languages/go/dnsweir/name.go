package dnsweir

import (
	"fmt"
	"strconv"
	"strings"
)

// Wire is the wire format, lowercase, of a name in presentation format (RFC 1035 section 5.1), and whether it is valid.
func Wire(name string) ([]byte, bool) {
	if name == "." {
		return []byte{0}, true
	}
	wire := []byte{0}
	label := 0
	end := func() bool {
		length := len(wire) - label - 1
		wire[label] = byte(length)
		label = len(wire)
		wire = append(wire, 0)
		return length > 0 && length < 64
	}
	for rest := strings.TrimSuffix(name, "."); rest != ""; {
		octet := rest[0]
		rest = rest[1:]
		switch {
		case octet == '.':
			if !end() {
				return nil, false
			}
			continue
		case octet == '\\' && len(rest) >= 3 && isDigit(rest[0]):
			number, err := strconv.ParseUint(rest[:3], 10, 8)
			if err != nil {
				return nil, false
			}
			octet, rest = byte(number), rest[3:]
		case octet == '\\' && rest != "" && !isDigit(rest[0]):
			octet, rest = rest[0], rest[1:]
		case octet == '\\':
			return nil, false
		}
		if octet >= 'A' && octet <= 'Z' {
			octet += 'a' - 'A'
		}
		wire = append(wire, octet)
	}
	return wire, end() && len(wire) <= 255
}

// Text is the presentation format of a name in wire format.
func Text(wire []byte) string {
	if len(wire) < 2 {
		return "."
	}
	var text strings.Builder
	for len(wire) > 1 && len(wire) > int(wire[0]) {
		for _, octet := range wire[1 : 1+wire[0]] {
			switch {
			case octet == '.' || octet == '\\':
				text.WriteByte('\\')
				text.WriteByte(octet)
			case octet > ' ' && octet < 0x7f:
				text.WriteByte(octet)
			default:
				fmt.Fprintf(&text, "\\%03d", octet)
			}
		}
		text.WriteByte('.')
		wire = wire[1+wire[0]:]
	}
	return text.String()
}

func isDigit(octet byte) bool { return octet >= '0' && octet <= '9' }
