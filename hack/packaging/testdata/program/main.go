package main

func main() { panic("the trace has the file's path") }
