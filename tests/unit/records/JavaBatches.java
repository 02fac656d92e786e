// Apache Kafka's own reader and writer of record batches.
//
//   write DIRECTORY           writes java-<codec>.batch for each codec, always the same 40 records
//   read FILE...              prints one line for each record, in the words of test_java.py

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class JavaBatches {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write"))
            write(Path.of(arguments[1]));
        else
            for (int i = 1; i < arguments.length; i++)
                read(Path.of(arguments[i]));
    }

    static void write(Path directory) throws Exception {
        SimpleRecord[] records = new SimpleRecord[40];
        for (int i = 0; i < records.length; i++) {
            byte[] key = i % 7 == 0 ? null : ("key" + i).getBytes(StandardCharsets.UTF_8);
            byte[] value = i % 5 == 0 ? null : "value ".repeat(i % 9 * 10).getBytes(StandardCharsets.UTF_8);
            Header[] headers = i % 2 == 0 ? new Header[0] : new Header[] {
                new RecordHeader("\u00e9" + i, i % 3 == 0 ? null : new byte[] {(byte) i, -1}),
                new RecordHeader("", new byte[0])};
            records[i] = new SimpleRecord(1_700_000_000_000L + i % 4, key, value, headers);
        }
        for (CompressionType codec : CompressionType.values()) {
            ByteBuffer buffer = MemoryRecords.withRecords(500, Compression.of(codec).build(), records).buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            Files.write(directory.resolve("java-" + codec.name + ".batch"), bytes);
        }
    }

    static void read(Path file) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                StringBuilder line = new StringBuilder();
                line.append(batch.compressionType().name).append(' ').append(record.offset()).append(' ');
                line.append(record.timestamp()).append(' ').append(hex(record.key())).append(' ');
                line.append(hex(record.value()));
                for (Header header : record.headers()) {
                    line.append(' ').append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
                    line.append('=').append(header.value() == null ? "null" : hex(ByteBuffer.wrap(header.value())));
                }
                System.out.println(line);
            }
        }
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return "x" + HexFormat.of().formatHex(bytes);
    }
}
