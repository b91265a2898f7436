module example.test/program

go 1.26
