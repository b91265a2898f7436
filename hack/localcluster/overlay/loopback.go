// SPDX-License-Identifier: Apache-2.0

package overlay

import "context"

// LoopbackEdits are the changes of the standard library's listeners.
var LoopbackEdits = edits{
	{
		"func Listen(network, address string) (Listener, error) {\n",
		"func Listen(network, address string) (Listener, error) {\n\tif len(address) > 0 && address[0] == ':' {\n\t\taddress = \"127.0.0.1\" + address\n\t}\n",
	},
}

// AddLoopback changes net.Listen, so that a program that names a port without a host listens on the loopback interface alone. It
// writes to the directory.
func (r Replacements) AddLoopback(ctx context.Context, directory string) error {
	return r.editStandardLibrary(ctx, directory, "net/dial.go", LoopbackEdits)
}
