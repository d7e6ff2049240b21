import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** A real OpenSearch node without its distribution: the packages hold the server, but nothing that starts it. */
public class TestNode {
    static class Bare extends Node {
        Bare(Environment e, Collection<Class<? extends Plugin>> plugins) {
            super(e, plugins, false);
        }
    }

    /** HOME DATA PORT [--setting=value ...] */
    public static void main(String[] args) {
        try {
            start(args);
        } catch (Throwable e) { // its threads would keep the process alive
            e.printStackTrace();
            System.exit(1);
        }
    }

    static void start(String[] args) throws Exception {
        Path home = Path.of(args[0]);
        for (String dir : List.of("config", "plugins", "modules")) {
            Files.createDirectories(home.resolve(dir));
        }
        Settings.Builder s = Settings.builder()
            .put("path.home", home.toString()).put("path.data", args[1]).put("path.logs", home.resolve("logs").toString())
            .put("cluster.name", "test").put("node.name", "test").put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1").put("http.port", args[2]).put("transport.port", "0")
            .put("http.type", "netty4").put("transport.type", "netty4")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .put("node.processors", 2).put("bootstrap.memory_lock", false);
        for (int i = 3; i < args.length; i++) {
            String[] setting = args[i].replaceFirst("^--", "").split("=", 2);
            s.put(setting[0], setting.length > 1 ? setting[1] : "");
        }
        Environment env = InternalSettingsPreparer.prepareEnvironment(s.build(), Map.of(), home.resolve("config"), () -> "test");
        Node node = new Bare(env, List.of(Netty4Plugin.class));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception e) {
                e.printStackTrace();
            }
        }));
        node.start();
        Thread.currentThread().join();
    }
}
