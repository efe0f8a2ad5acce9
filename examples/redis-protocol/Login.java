import java.util.List;
import redis.clients.jedis.Jedis;

public class Login {
    public static void main(String[] arguments) {
        try (Jedis client = new Jedis("127.0.0.1", 6380)) {
            List<?> reply = (List<?>) client.sendCommand(
                () -> "WEIR.CHECK".getBytes(), "shop", "1", "login", "ann");
            System.out.println(reply.get(0).equals(1L)
                ? "welcome, " + reply.get(1) + " more attempts"
                : "try again in " + reply.get(2) + " ms");
        }
    }
}
