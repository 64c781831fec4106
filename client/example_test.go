package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sandboxrun/sandboxrun/client"
)

// A program that runs beside others uses their server: sandboxrun serve --socket /run/user/1000/sandboxes.sock
func ExampleStart_address() {
	c, err := client.Start(client.Options{Address: "/run/user/1000/sandboxes.sock"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }() // ends its own sandboxes, and not the server
	ctx := context.Background()
	sb, err := c.Create(ctx, client.Policy{Name: "task"})
	if err != nil {
		log.Fatal(err)
	}
	out, err := sb.CommandContext(ctx, "echo", "there").Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", out)
}
