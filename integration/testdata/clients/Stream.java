import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.regex.Pattern;

/** Reads a streamed answer of a chat API with Java's own client: java Stream.java URL. See stream.py. */
public class Stream {
	public static void main(String[] args) throws Exception {
		String id = UUID.randomUUID().toString();
		HttpClient client = HttpClient.newHttpClient();
		HttpRequest ask = HttpRequest.newBuilder(URI.create(args[0] + "/v1/chat/completions?id=" + id))
			.header("Content-Type", "application/json")
			.POST(HttpRequest.BodyPublishers.ofString("{\"model\":\"any\",\"stream\":true,\"messages\":[]}"))
			.build();
		HttpRequest seen = HttpRequest.newBuilder(URI.create(args[0] + "/seen?id=" + id)).build();
		HttpResponse<java.util.stream.Stream<String>> answer = client.send(ask, HttpResponse.BodyHandlers.ofLines());
		Pattern word = Pattern.compile("\"content\":\"(\\w+)\"");
		List<String> words = new ArrayList<>();
		for (String line : (Iterable<String>) answer.body()::iterator) {
			var found = word.matcher(line);
			if (!found.find()) continue;
			words.add(found.group(1));
			if (words.size() == 1) client.send(seen, HttpResponse.BodyHandlers.discarding());
		}
		System.out.println(answer.statusCode() + " " + String.join(" ", words));
	}
}
