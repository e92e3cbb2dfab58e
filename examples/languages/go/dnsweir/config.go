package dnsweir

// Config is the filter's block of the configuration, in document order.
type Config []Node

// Node is a node of it.
type Node struct {
	Name      string
	Arguments []Value
	// Property values by name.
	Properties map[string]Value
	// The index of the node whose block contains this one; -1 at the top.
	Parent int

	index uint32
}

// Value is nil, a bool, an int64, a float64, a string or Data.
type Value any

// Text is the argument with this index, if it is there and a string.
func (n *Node) Text(argument int) (string, bool) {
	if argument >= len(n.Arguments) {
		return "", false
	}
	text, ok := n.Arguments[argument].(string)
	return text, ok
}

// Mistake is a mistake in the configuration, which the proxy underlines in the user's file.
type Mistake struct {
	message, help string
	// None: it is not in a node.
	node     *Node
	argument int
	property string
}

// Missing reports what the block lacks.
func Missing(message, help string) Mistake {
	return Mistake{message: message, help: help, argument: -1}
}

// Mistake reports what is wrong with a node and what would be right.
func (n *Node) Mistake(message, help string) Mistake {
	return Mistake{message: message, help: help, node: n, argument: -1}
}

// MistakeIn reports what is wrong with one of its arguments.
func (n *Node) MistakeIn(argument int, message, help string) Mistake {
	mistake := n.Mistake(message, help)
	if argument < len(n.Arguments) {
		mistake.argument = argument
	}
	return mistake
}

// MistakeAt reports what is wrong with the property of this name.
func (n *Node) MistakeAt(property, message, help string) Mistake {
	mistake := n.Mistake(message, help)
	if _, there := n.Properties[property]; there {
		mistake.property = property
	}
	return mistake
}
