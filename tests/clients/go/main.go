// go-redis: calls the commands over both versions of the protocol.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

func check(is bool, what ...any) {
	if !is {
		fmt.Fprintln(os.Stderr, what...)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	for protocol := 2; protocol <= 3; protocol++ {
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:" + os.Args[1], Password: "secret", Protocol: protocol,
		})
		check(client.Ping(ctx).Err() == nil, client.Ping(ctx).Err())
		user := fmt.Sprintf("go-%d", protocol)
		checked, err := client.Do(ctx, "WEIR.CHECK", "shop", 3, "user", user).Slice()
		check(err == nil && checked[0] == int64(1) && checked[4] == "per-user", checked, err)
		denied, err := client.Do(ctx, "WEIR.CHECK", "shop", 1, "user", user).Slice()
		check(err == nil && denied[0] == int64(2), denied, err)
		throttled, err := client.Do(ctx, "CL.THROTTLE", user, 2, 1, 3600).Int64Slice()
		check(err == nil && fmt.Sprint(throttled) == "[0 3 2 -1 3600]", throttled, err)
		limited := int64(0)
		commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for range 100 {
				pipe.Do(ctx, "CL.THROTTLE", user+"-pipelined", 9, 1, 3600)
			}
			return nil
		})
		check(err == nil, err)
		for _, command := range commands {
			reply, err := command.(*redis.Cmd).Int64Slice()
			check(err == nil, err)
			limited += reply[0]
		}
		check(limited == 90, limited)
		err = client.Get(ctx, "key").Err()
		check(err != nil && strings.Contains(err.Error(), "unknown command"), err)
	}
	fmt.Println("good")
}
