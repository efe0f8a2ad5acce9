import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;

/** Jedis: calls the commands over both versions of the protocol. */
public class Client {
  static ProtocolCommand command(String name) {
    return name::getBytes;
  }

  static void check(boolean is, Object what) {
    if (!is) throw new AssertionError(String.valueOf(what));
  }

  public static void main(String[] arguments) {
    HostAndPort address = new HostAndPort("127.0.0.1", Integer.parseInt(arguments[0]));
    for (RedisProtocol protocol : RedisProtocol.values()) {
      var config = DefaultJedisClientConfig.builder().password("secret").protocol(protocol).build();
      try (Jedis jedis = new Jedis(address, config)) {
        check("PONG".equals(jedis.ping()), "ping");
        String user = "java-" + protocol;
        List<?> checked = (List<?>) jedis.sendCommand(command("WEIR.CHECK"), "shop", "3", "user", user);
        check(checked.get(0).equals(1L), checked);
        check(new String((byte[]) checked.get(4)).equals("per-user"), checked);
        List<?> denied = (List<?>) jedis.sendCommand(command("WEIR.CHECK"), "shop", "1", "user", user);
        check(denied.get(0).equals(2L), denied);
        Object throttled = jedis.sendCommand(command("CL.THROTTLE"), user, "2", "1", "3600");
        check(throttled.toString().equals("[0, 3, 2, -1, 3600]"), throttled);
        List<Response<Object>> replies = new ArrayList<>();
        Pipeline pipeline = jedis.pipelined();
        for (int i = 0; i < 100; i++) {
          replies.add(pipeline.sendCommand(command("CL.THROTTLE"), user + "-pipelined", "9", "1", "3600"));
        }
        pipeline.sync();
        long limited = replies.stream().filter(it -> ((List<?>) it.get()).get(0).equals(1L)).count();
        check(limited == 90, limited);
        try {
          jedis.get("key");
          check(false, "an unknown command was answered");
        } catch (JedisDataException error) {
          check(error.getMessage().contains("unknown command"), error);
        }
      }
    }
    System.out.println("good");
  }
}
