// SPDX-License-Identifier: Apache-2.0

// Command program is what the quick-exit image runs: it ends with exit code 0 at once.
package main

func main() {}
